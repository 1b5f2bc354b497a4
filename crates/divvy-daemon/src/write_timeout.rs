//! A stream whose writes do not wait for ever: whoever asks and does not read the answer is cut off.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep};

/// A connection that fails once nothing could be written for a time.
#[derive(Debug)]
pub(crate) struct WriteTimeout {
    stream: UnixStream,
    timeout: Duration,
    /// When the write that waits just now is given up, if one does.
    given_up: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    /// `stream`, of which a write that gets nowhere for `timeout` fails.
    pub(crate) fn new(stream: UnixStream, timeout: Duration) -> Self {
        Self { stream, timeout, given_up: None }
    }

    /// What a write came to, or that its time is up.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<std::io::Result<T>>,
    ) -> Poll<std::io::Result<T>> {
        if written.is_ready() {
            self.given_up = None;
            return written;
        }
        let timeout = self.timeout;
        let timer =
            self.given_up.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// More than a socket keeps for a reader.
    const MUCH: usize = 8 << 20;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(future)
    }

    #[test]
    fn who_reads_nothing_is_given_up_and_who_reads_slowly_is_not() {
        run(async {
            let (near, far) = UnixStream::pair().expect("a pair");
            let mut writer = WriteTimeout::new(near, Duration::from_millis(50));
            let failed = writer.write_all(&vec![1; MUCH]).await.expect_err("nobody reads");
            assert_eq!(failed.kind(), std::io::ErrorKind::TimedOut);
            drop(far);
            // Each part that is read starts the timeout anew.
            let (near, mut far) = UnixStream::pair().expect("a pair");
            let mut writer = WriteTimeout::new(near, Duration::from_secs(5));
            let reader = tokio::spawn(async move {
                let (mut all, mut part) = (0, vec![0; MUCH / 8]);
                while let Ok(n @ 1..) = far.read(&mut part).await {
                    all += n;
                    if all < MUCH / 2 {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
                all
            });
            writer.write_all(&vec![1; MUCH]).await.expect("somebody reads");
            drop(writer);
            assert_eq!(reader.await.expect("a reader"), MUCH);
        });
    }
}
