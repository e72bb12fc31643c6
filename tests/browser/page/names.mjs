// Names that try to be more than names: markup, addresses, scripts, and characters that hide or turn text.

const MARKUP = [
  '<script>window.ran=1</script>', '<img src=x onerror=window.ran=1>', '"><svg onload=window.ran=1>', "'-window.ran=1-'",
  '</td></tr></table><h1>Hello', '<iframe srcdoc="<script>parent.ran=1</script>">', '<style>*{display:none}</style>',
  '<base href="http://evil.example/">', '<form action="http://evil.example/"><input>', '<a href="javascript:window.ran=1">x</a>',
  '${window.ran=1}', '{{constructor.constructor("window.ran=1")()}}', '<!--', ']]>', '&lt;b&gt;', '%3Cscript%3E', 'javascript:window.ran=1',
  'data:text/html,<script>window.ran=1</script>', '__proto__', 'constructor', 'toString',
];
const HIDDEN = [
  '\u202Egnp.exe', '\u202Dabc', '\u2066abc\u2069', '\u2067abc', '\u2068abc', '\u200Fabc', '\u200Eabc', '\u061Cabc', 'a\u200Bb', 'a\u200Cb', 'a\u200Db', '\uFEFFabc',
  'a\u2060b', 'tag\u{E0041}\u{E0042}', 'a\u0007b', 'a\u001B[31mred', 'a\u0085b', 'line\u2028two', 'para\u2029two', 'tab\tb', 'lf\nb', 'soft\u00ADhyphen', 'lone\uD800x', 'private\uE000',
];
const LONG = ['x'.repeat(2000), 'long '.repeat(100), 'ⅣÄÖÜ'.repeat(80), '🙂'.repeat(300), 'e\u0301'.repeat(60), 'אבג דהו', 'مرحبا', '漢字'.repeat(50), '.', '..', '%2e%2e%2f', 'a/b?c=d#e'];

/** At least 300 texts. */
export const HOSTILE = [...MARKUP, ...HIDDEN, ...LONG].flatMap((text) => [text, `a ${text} b`, `${text}${text}`, `${text}-1`, `1-${text}`, `https://evil.example/${text}`]);

/** The characters that none of them may leave on the page as they are. */
export const RAW = /[\u0000-\u0009\u000B-\u001F\u007F-\u009F\u00AD\u061C\u200B-\u200F\u2028-\u202E\u2060-\u2069\uFEFF\uE000]|[\u{E0000}-\u{E007F}]/u;
