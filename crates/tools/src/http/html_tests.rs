use std::time::Instant;

use super::*;

fn text(html: &str) -> String {
    plain(html, &Url::parse("https://example.com/a/b").unwrap(), 100_000).text
}

#[test]
fn a_page_reads_like_a_page() {
    let page = "<!DOCTYPE html><html><head><title> The\n title </title><style>p{color:red}</style>
        <script>if (a < b) document.write('<p>no</p>')</script></head><body>
        <h1>Head<em>ing</em></h1><p>First   line<br>second &amp; last.</p>
        <!-- not this --><ul><li>one<li>two <a href='../x?y=1'>link</a></ul>
        <table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>
        <pre>  kept
   as is</pre><svg><title>not this</title><text>nor this</text></svg><img alt='a cat'>
        <a href='#top'>top</a> <a href='javascript:alert(1)'>run</a><noscript>no script</noscript></body></html>";
    let page = plain(page, &Url::parse("https://example.com/a/b").unwrap(), 100_000);
    assert_eq!(page.title.as_deref(), Some("The title"));
    assert_eq!(
        page.text,
        "# Heading\n\nFirst line\nsecond & last.\n\n- one\n- two link (https://example.com/x?y=1)\n\n\
         a | b\nc | d\n\n  kept\n   as is\n\n[a cat] top run"
    );
    assert!(!page.cut);
}

#[test]
fn scripts_do_not_leak() {
    for html in [
        "a<script>secret</script>b",
        "a<script>'</scr' + 'ipt>' secret</script>b",
        "a<style>secret</style>b",
        "a<SCRIPT type=x>secret</SCRIPT >b",
        "a<template><p>secret</template>b",
        "a<svg><svg>secret</svg>secret</svg>b",
        "a<!-- secret -->b",
    ] {
        assert_eq!(text(html), "ab", "{html}");
    }
    assert_eq!(text("<script>never closed secret"), "");
}

#[test]
fn odd_pages_are_read_too() {
    assert_eq!(text(""), "");
    assert_eq!(text("no tags at all"), "no tags at all");
    assert_eq!(text("<p>un<b>closed <i>tags</p> here"), "unclosed tags\n\nhere");
    assert_eq!(text("</div></p></ul>x"), "x");
    assert_eq!(text("&lt;script&gt; &#x41; &nbsp; &bogus;"), "<script> A &bogus;");
    assert_eq!(
        text("<a href=/one>one<a href=/two>two</a>"),
        "one (https://example.com/one)two (https://example.com/two)"
    );
}

#[test]
fn no_page_is_too_deep() {
    let begun = Instant::now();
    for (open, close) in [
        ("<div>", "</div>"),
        ("<b>", ""),
        ("<ul><li>", ""),
        ("<svg>", "</svg>"),
        ("<a href=x>", ""),
    ] {
        let size = if open == "<div>" { 1_000_000 } else { 100_000 };
        let times = size / open.len();
        let html = format!("{}deep{}", open.repeat(times), close.repeat(times));
        let read = text(&html);
        assert!(open == "<svg>" || read.contains("deep") || read.len() > 10_000, "{open}");
    }
    assert!(begun.elapsed().as_secs() < 30);
}

#[test]
fn a_long_page_is_cut() {
    let page = plain(&"word ".repeat(1_000), &Url::parse("https://e.com").unwrap(), 99);
    assert_eq!((page.text.chars().count(), page.cut), (99, true));
    let page = plain("exact", &Url::parse("https://e.com").unwrap(), 5);
    assert_eq!((page.text.as_str(), page.cut), ("exact", false));
}
