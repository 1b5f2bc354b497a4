pub fn primes(n: usize) -> Vec<usize> {
    let mut is = vec![true; n];
    (2..n).filter(|&i| { if is[i] { (i * i..n).step_by(i).for_each(|j| is[j] = false) }; is[i] }).collect()
}
