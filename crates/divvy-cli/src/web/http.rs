//! As much of HTTP as the page needs: a connection is one request, read up to a deadline, and one answer. `httparse` reads the
//! head. Anybody on this machine can connect to a loopback port, so everything that is read has an end.

use std::io::{Error as IoError, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use divvy_linux::clock;
use divvy_policy::Nanos;

/// Bytes in a request's head at most.
const HEAD_MAX: usize = 16 * 1024;
/// Lines in it.
const HEADERS_MAX: usize = 64;
/// Bytes in a body at most.
const BODY_MAX: usize = 64 * 1024;
/// From the connection to the end of the request.
const REQUEST_TIME: Nanos = Nanos::from_secs(5);
/// For each part of an answer that is taken.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// What is left unread is thrown away for so long, so that the answer arrives.
const DRAIN_TIME: Duration = Duration::from_millis(200);

/// What every answer says to the browser: nothing but what this server serves is loaded, run or asked; nobody frames it.
const PROTECTION: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
X-Content-Type-Options: nosniff\r\n\
Referrer-Policy: no-referrer\r\n\
Cross-Origin-Opener-Policy: same-origin\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
Cache-Control: no-store\r\n";

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    /// Without the question mark; empty where there is none.
    pub(super) query: String,
    /// Names in lower case, each once.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// A header's value, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A word of the query.
    pub(super) fn asked(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .find_map(|pair| pair.split_once('=').filter(|(n, _)| *n == name))
            .map(|(_, v)| v)
    }
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(status: u16, body: &impl serde::Serialize) -> Self {
        // What is written here are types of this crate and the API's: numbers and strings.
        Self { status, kind: "application/json", body: serde_json::to_vec(body).unwrap_or_default() }
    }

    /// A refusal in words, and what to do about it, in the form that the API has.
    pub(super) fn refusal(status: u16, message: impl std::fmt::Display, fix: &str) -> Self {
        let code = match status {
            401 | 403 => "not-permitted",
            404 => "no-such-path",
            405 => "no-such-method",
            408 => "too-slow",
            413 | 431 => "too-large",
            _ => "bad-request",
        };
        let error = serde_json::json!({"code": code, "message": message.to_string(), "fix": fix});
        Self::json(status, &serde_json::json!({ "error": error }))
    }
}

/// Reads one request.
///
/// # Errors
/// The answer to what is none; `None` where nobody is left to be answered.
pub(super) fn read(stream: &mut TcpStream) -> Result<Request, Option<Answer>> {
    let deadline = clock::now() + REQUEST_TIME;
    let mut bytes = Vec::new();
    let (mut request, length, begin) = loop {
        more(stream, &mut bytes, deadline)?;
        let head = head(&bytes).map_err(Some)?;
        if head.as_ref().map_or(bytes.len(), |(_, _, begin)| *begin) > HEAD_MAX {
            let text = format!("the head of the request is longer than {HEAD_MAX} bytes");
            return Err(Some(Answer::refusal(431, text, "send less")));
        }
        if let Some(head) = head {
            break head;
        }
    };
    if length > BODY_MAX {
        let text = format!("the body is longer than {BODY_MAX} bytes");
        return Err(Some(Answer::refusal(413, text, "send less")));
    }
    while bytes.len() < begin + length {
        more(stream, &mut bytes, deadline)?;
    }
    request.body = bytes[begin..begin + length].to_vec();
    Ok(request)
}

/// Waits for more of a request, until `deadline`.
fn more(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    deadline: divvy_policy::Instant,
) -> Result<(), Option<Answer>> {
    let too_slow = || Some(Answer::refusal(408, "the request did not come to its end in 5 s", "ask again"));
    let mut some = [0; 4096];
    loop {
        let left = deadline.since(clock::now());
        if left == Nanos::ZERO {
            return Err(too_slow());
        }
        stream.set_read_timeout(Some(Duration::from_nanos(left.0))).map_err(|_| None)?;
        match stream.read(&mut some) {
            Ok(0) => return Err(None),
            Ok(n) => {
                bytes.extend_from_slice(&some[..n]);
                return Ok(());
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(too_slow());
            }
            Err(_) => return Err(None),
        }
    }
}

/// The request without its body, the body's length and where that begins; `None` where more of the head is to come.
///
/// # Errors
/// The answer to what is no request.
fn head(bytes: &[u8]) -> Result<Option<(Request, usize, usize)>, Answer> {
    let bad = |why: &str| Answer::refusal(400, format!("no request: {why}"), "speak HTTP/1.1");
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let begin = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(begin)) => begin,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Answer::refusal(431, format!("more than {HEADERS_MAX} header lines"), "send less"));
        }
        Err(e) => return Err(bad(&e.to_string())),
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        ..Request::default()
    };
    for header in parsed.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        let value = std::str::from_utf8(header.value).map_err(|_| bad(&format!("{name} is no text")))?;
        // Of two hosts or lengths, who knows which another believes.
        if request.header(&name).is_some() {
            return Err(bad(&format!("{name} comes twice")));
        }
        request.headers.push((name, value.to_owned()));
    }
    if request.header("transfer-encoding").is_some() {
        return Err(bad("its body has a transfer encoding; say its length"));
    }
    let length = match request.header("content-length") {
        None => 0,
        Some(text) => text.parse().map_err(|_| bad(&format!("'{text}' is no length")))?,
    };
    Ok(Some((request, length, begin)))
}

/// Writes an answer, and ends the connection. `body` is left out where only the head was asked for.
pub(super) fn write(stream: &mut TcpStream, answer: &Answer, with_body: bool) -> Result<(), IoError> {
    stream.set_write_timeout(Some(WRITE_TIME))?;
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{PROTECTION}\r\n",
        answer.status,
        reason(answer.status),
        answer.kind,
        answer.body.len()
    );
    let mut bytes = head.into_bytes();
    if with_body {
        bytes.extend_from_slice(&answer.body);
    }
    stream.write_all(&bytes)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    // A socket that is closed with something unread takes back what was said.
    stream.set_read_timeout(Some(DRAIN_TIME))?;
    let mut rest = [0; 4096];
    for _ in 0..64 {
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whole_or_refused() {
        let text =
            "PATCH /v1/clients/3?a=b&since=7 HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 5\r\n\r\nhello";
        for end in 0..text.len() - 5 {
            assert_eq!(head(&text.as_bytes()[..end]).unwrap(), None, "{end} bytes are no head");
        }
        let (request, length, begin) = head(text.as_bytes()).unwrap().unwrap();
        assert_eq!((length, &text[begin..]), (5, "hello"));
        assert_eq!((request.method.as_str(), request.path.as_str()), ("PATCH", "/v1/clients/3"));
        assert_eq!(
            (request.asked("since"), request.asked("sinc"), request.header("host")),
            (Some("7"), None, Some("localhost:1"))
        );
        for (text, status, words) in [
            ("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400, "host comes twice"),
            (
                "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                400,
                "content-length comes twice",
            ),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "say its length"),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "'-1' is no length"),
            ("GET /\r\n\r\n", 400, "no request"),
            ("\u{1}\u{2}\r\n\r\n", 400, "no request"),
            (&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1)), 431, "header lines"),
        ] {
            let answer = head(text.as_bytes()).unwrap_err();
            let body = String::from_utf8(answer.body).unwrap();
            assert_eq!(answer.status, status, "{text}: {body}");
            assert!(body.contains(words), "{text}: {body}");
        }
    }
}
