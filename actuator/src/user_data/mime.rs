//! Multipart MIME documents as cloud-init reads them.

/// The boundary that Karpenter uses.
const BOUNDARY: &str = "//";
pub(super) const SHELL_SCRIPT: &str = "text/x-shellscript; charset=\"us-ascii\"";
pub(super) const NODE_CONFIG: &str = "application/node.eks.aws";

/// A part of a multipart document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MimePart {
    /// Its header, line by line.
    pub(super) header: Vec<String>,
    /// Body.
    pub(super) body: String,
}

impl MimePart {
    /// A script. The line that names its interpreter must be the first.
    pub(super) fn script(text: &str) -> Self {
        Self::new(SHELL_SCRIPT, text.trim_start())
    }

    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self { header: vec![format!("Content-Type: {content_type}")], body: body.into() }
    }
}

/// Whether the text has a MIME header.
pub(super) fn is_mime(text: &str) -> bool {
    let head = text.trim_start();
    ["mime-version:", "content-type:"]
        .iter()
        .any(|name| head.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
}

/// The parts of a document. A document that is not multipart is a single part.
pub(super) fn parse(text: &str) -> Result<Vec<MimePart>, String> {
    let text = text.trim_start().replace('\r', "");
    let (header, body) = split_header(&text);
    let content_type = field(&header, "content-type").ok_or("a MIME document without Content-Type")?;
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        return Ok(vec![MimePart { header, body: body.to_owned() }]);
    }
    let boundary = boundary(&content_type).ok_or("a multipart document without boundary")?;
    let (delimiter, end) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<Vec<&str>> = Vec::new();
    let mut ended = false;
    for line in body.split('\n') {
        let mark = line.trim_end();
        if mark == end {
            ended = true;
            break;
        }
        if mark == delimiter {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(line);
        }
    }
    // As in Karpenter, a last delimiter without the closing hyphens ends the document if nothing follows it.
    if !ended && parts.last().is_some_and(|lines| lines.iter().all(|line| line.trim().is_empty())) {
        parts.pop();
        ended = true;
    }
    if !ended {
        return Err(format!("a multipart document that does not end with {end}"));
    }
    let part = |lines: Vec<&str>| {
        let text = lines.join("\n");
        let (header, body) = split_header(&text);
        MimePart { header, body: body.to_owned() }
    };
    Ok(parts.into_iter().map(part).collect())
}

/// Renders a multipart document. The newline before a delimiter belongs to the delimiter, so that bodies are unchanged.
pub(super) fn render(parts: &[MimePart]) -> String {
    let boundary = free_boundary(parts);
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for part in parts {
        // A part may have no header: its body then follows the empty line at once.
        let header: String = part.header.iter().map(|line| format!("{line}\n")).collect();
        text.push_str(&format!("--{boundary}\n{header}\n{}\n", part.body.replace('\r', "")));
    }
    text.push_str(&format!("--{boundary}--\n"));
    text
}

/// A boundary that does not occur in any part.
fn free_boundary(parts: &[MimePart]) -> String {
    let mut boundary = BOUNDARY.to_owned();
    let is_used = |boundary: &str| {
        let mark = format!("--{boundary}");
        parts.iter().any(|part| part.body.lines().any(|line| line.starts_with(&mark)))
    };
    while is_used(&boundary) {
        boundary.push('=');
    }
    boundary
}

/// The header lines, and the body after the empty line.
fn split_header(text: &str) -> (Vec<String>, &str) {
    let mut header = Vec::new();
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if line.trim().is_empty() {
            return (header, rest);
        }
        header.push(line.to_owned());
    }
    // There is only a header, or the last line has no newline.
    if !rest.trim().is_empty() {
        header.push(rest.to_owned());
    }
    (header, "")
}

/// A header field, with its continuation lines.
fn field(header: &[String], name: &str) -> Option<String> {
    let mut result: Option<String> = None;
    for line in header {
        if line.starts_with([' ', '\t']) {
            if let Some(value) = &mut result {
                value.push(' ');
                value.push_str(line.trim());
            }
            continue;
        }
        if result.is_some() {
            break;
        }
        let (key, value) = line.split_once(':')?;
        if key.trim().eq_ignore_ascii_case(name) {
            result = Some(value.trim().to_owned());
        }
    }
    result
}

fn boundary(content_type: &str) -> Option<String> {
    let parameter = content_type.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case("boundary").then_some(value)
    })?;
    let boundary = parameter.trim().trim_matches('"');
    (!boundary.is_empty()).then(|| boundary.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_document_round_trips() {
        let parts =
            vec![MimePart::new(SHELL_SCRIPT, "#!/bin/sh\necho one\n"), MimePart::new(NODE_CONFIG, "spec: {}\n")];
        let text = render(&parts);
        assert!(text.ends_with("spec: {}\n\n--//--\n"), "{text}");
        assert_eq!(parse(&text).unwrap(), parts);
    }

    #[test]
    fn parse_accepts_other_boundaries_folded_headers_and_crlf() {
        let text = "\r\nContent-Type: multipart/mixed;\r\n boundary=BND\r\nMIME-Version: 1.0\r\n\r\nprologue\r\n--BND\r\n\
                    Content-Type: text/cloud-config\r\nContent-Disposition: x\r\n\r\na: 1\r\n--BND--\r\nepilogue";
        assert!(is_mime(text));
        let parts = parse(text).unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].header, ["Content-Type: text/cloud-config", "Content-Disposition: x"]);
        assert_eq!(parts[0].body, "a: 1");
    }

    #[test]
    fn render_avoids_boundaries_that_occur_in_a_body() {
        let text = render(&[MimePart::new(SHELL_SCRIPT, "--//\n")]);
        assert_eq!(parse(&text).unwrap()[0].body, "--//\n");
    }

    #[test]
    fn last_delimiter_may_lack_its_closing_hyphens() {
        for end in ["", "\n", "\n\n"] {
            let text = format!("Content-Type: multipart/mixed; boundary=a\n\n--a\n\none\n--a\n\ntwo\n--a{end}");
            let bodies: Vec<String> = parse(&text).unwrap().into_iter().map(|part| part.body).collect();
            assert_eq!(bodies, ["one", "two"]);
        }
    }

    #[test]
    fn malformed_documents_are_rejected() {
        for text in ["MIME-Version: 1.0\n\nx", "Content-Type: multipart/mixed\n\n--a\n\nx\n--a--"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let endless = "Content-Type: multipart/mixed; boundary=a\n\n--a\n\nx";
        assert_eq!(parse(endless).unwrap_err(), "a multipart document that does not end with --a--");
        assert!(!is_mime("#!/bin/sh\n"));
    }
}
