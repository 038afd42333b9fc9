//! A page as text: what a person would read, with headings, lists and links still to be told apart.
//!
//! It goes over the tokens of the page once and keeps no tree, so that no page is too deep for it.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use reqwest::Url;

/// The longest title.
const TITLE: usize = 300;

/// The longest address of a link that is worth showing.
const LINK: usize = 500;

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plain {
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// There was more.
    pub(super) cut: bool,
}

/// The text of a page that was at `base`, at most `most` characters of it.
pub(super) fn plain(html: &str, base: &Url, most: usize) -> Plain {
    let mut emitter = DefaultEmitter::default();
    // So that what is in a script is not taken for tags.
    emitter.naively_switch_states(true);
    let mut page = Walk::new(base, most);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        // Reading from a text does not fail.
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => page.start(&tag),
            Token::EndTag(tag) => page.end(&tag.name),
            Token::String(text) => page.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        if page.out.full {
            break;
        }
    }
    page.done()
}

/// Where in the page we are.
struct Walk<'a> {
    base: &'a Url,
    out: Writer,
    title: Option<String>,
    in_title: bool,
    /// The element whose content nobody reads, and how often it is open inside itself.
    skipped: Option<(Vec<u8>, usize)>,
    /// Where the link that is open leads.
    link: Option<String>,
    /// How many elements are open in which space counts.
    kept_as_is: usize,
}

impl<'a> Walk<'a> {
    fn new(base: &'a Url, most: usize) -> Self {
        let out = Writer::new(most);
        Self { base, out, title: None, in_title: false, skipped: None, link: None, kept_as_is: 0 }
    }

    fn start(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, depth)) = &mut self.skipped {
            if skipped == name && !tag.self_closing {
                *depth += 1;
            }
            return;
        }
        let attribute = |name: &[u8]| {
            tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        match name {
            b"script" | b"style" | b"template" | b"svg" | b"noscript" | b"iframe" | b"object"
            | b"canvas" | b"math" | b"select" | b"noembed" | b"noframes"
                if !tag.self_closing =>
            {
                self.skipped = Some((name.to_vec(), 1));
            }
            b"title" => self.in_title = true,
            b"a" => {
                self.close_link();
                self.link = attribute(b"href").and_then(|href| self.absolute(&href));
            }
            b"img" => {
                if let Some(alt) = attribute(b"alt").filter(|alt| !alt.trim().is_empty()) {
                    self.out.words(&format!("[{}]", alt.trim()));
                }
            }
            b"br" => self.out.line(),
            b"hr" => {
                self.out.paragraph();
                self.out.words("---");
                self.out.paragraph();
            }
            b"li" => {
                self.out.line();
                self.out.words("- ");
            }
            b"td" | b"th" => self.out.cell(),
            b"pre" | b"textarea" => {
                self.out.paragraph();
                self.kept_as_is += 1;
            }
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.out.paragraph();
                let level = name.get(1).map_or(1, |digit| usize::from(digit - b'0'));
                self.out.words(&format!("{} ", "#".repeat(level)));
            }
            _ => self.boundary(name),
        }
    }

    fn end(&mut self, name: &[u8]) {
        if let Some((skipped, depth)) = &mut self.skipped {
            if skipped == name {
                *depth -= 1;
                if *depth == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"a" => self.close_link(),
            b"pre" | b"textarea" => {
                self.kept_as_is = self.kept_as_is.saturating_sub(1);
                self.out.paragraph();
            }
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => self.out.paragraph(),
            b"li" => self.out.line(),
            _ => self.boundary(name),
        }
    }

    /// What begins or ends here may begin a line.
    fn boundary(&mut self, name: &[u8]) {
        match name {
            b"p" | b"blockquote" | b"table" | b"ul" | b"ol" | b"dl" | b"figure" | b"article"
            | b"section" | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"form"
            | b"details" | b"fieldset" => self.out.paragraph(),
            b"div" | b"tr" | b"dt" | b"dd" | b"body" | b"head" | b"html" | b"address"
            | b"caption" | b"figcaption" | b"summary" | b"option" | b"thead" | b"tbody" => {
                self.out.line();
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
        } else if self.in_title {
            if self.title.is_none() {
                let words: Vec<&str> = text.split_whitespace().collect();
                let title: String = words.join(" ").chars().take(TITLE).collect();
                self.title = Some(title).filter(|title| !title.is_empty());
            }
        } else if self.kept_as_is > 0 {
            self.out.as_is(text);
        } else {
            self.out.words(text);
        }
    }

    /// Says where a link leads, behind its words.
    fn close_link(&mut self) {
        if let Some(address) = self.link.take() {
            self.out.words(&format!(" ({address})"));
        }
    }

    /// Where a link leads, if that is another page.
    fn absolute(&self, href: &str) -> Option<String> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        let url = self.base.join(href).ok()?;
        let shown = matches!(url.scheme(), "http" | "https") && url.as_str().len() <= LINK;
        shown.then(|| url.to_string())
    }

    fn done(mut self) -> Plain {
        self.close_link();
        Plain { title: self.title, text: self.out.text.trim().to_owned(), cut: self.out.full }
    }
}

/// Text in which runs of space are one, and empty lines never more than one.
struct Writer {
    text: String,
    left: usize,
    full: bool,
    space: bool,
    lines: usize,
}

impl Writer {
    fn new(most: usize) -> Self {
        Self { text: String::new(), left: most, full: false, space: false, lines: 2 }
    }

    fn words(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_whitespace() {
                self.space = true;
            } else {
                if self.space && self.lines == 0 {
                    self.push(' ');
                }
                self.push(c);
                self.space = false;
                self.lines = 0;
            }
        }
    }

    fn as_is(&mut self, text: &str) {
        for c in text.chars() {
            self.push(c);
            self.lines = usize::from(c == '\n');
            self.space = false;
        }
    }

    fn cell(&mut self) {
        if self.lines == 0 {
            self.words(" | ");
            self.space = true;
        }
    }

    fn line(&mut self) {
        self.lines_up_to(1);
    }

    fn paragraph(&mut self) {
        self.lines_up_to(2);
    }

    fn lines_up_to(&mut self, wanted: usize) {
        while self.lines < wanted {
            self.push('\n');
            self.lines += 1;
        }
        self.space = false;
    }

    fn push(&mut self, c: char) {
        if self.left == 0 {
            self.full = true;
        } else {
            self.text.push(c);
            self.left -= 1;
        }
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
