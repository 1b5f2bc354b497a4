//! The name under which a program that is linked with the shared library finds it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdivvy.so.0");
}
