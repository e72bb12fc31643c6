//! URI templates and URIs: the first line is a template, the second a URI.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::{ResourceUri, UriPattern, UriTemplate};

fuzz_target!(|text: &str| {
    let (template, uri) = text.split_once('\n').unwrap_or((text, text));
    if let Ok(template) = UriTemplate::parse(template)
        && let Some(found) = template.matches(uri)
    {
        for name in template.variable_names() {
            let _value = found.get(name);
        }
    }
    if let Ok(uri) = ResourceUri::new(uri) {
        assert_eq!(ResourceUri::new(uri.as_str()).as_ref(), Ok(&uri));
        if let Ok(pattern) = template.parse::<UriPattern>() {
            let _matches = pattern.matches(&uri);
        }
    }
});
