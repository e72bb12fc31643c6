// Validates the golden frames of one revision against that revision's JSON schema, which the official conformance
// package carries in its bundle. Usage: node schema_check.mjs --package DIR --revision DATE --frames DIR
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import vm from 'node:vm';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({
  options: { package: { type: 'string' }, revision: { type: 'string' }, frames: { type: 'string' } },
});

function fail(reason) {
  console.log(`reason: ${reason}`);
  process.exit(1);
}

// What each frame is. The first name that the revision's schema has counts.
const results = {
  initialize: ['InitializeResult'],
  discover: ['DiscoverResult'],
  resources_list: ['ListResourcesResult'],
  resources_read: ['ReadResourceResult'],
  subscribe: ['EmptyResult'],
  listen_result: ['SubscriptionsListenResult'],
};
const notifications = {
  updated: ['ResourceUpdatedNotification'],
  list_changed: ['ResourceListChangedNotification'],
  acknowledged: ['SubscriptionsAcknowledgedNotification'],
};
const envelopes = {
  result: ['JSONRPCResultResponse', 'JSONRPCResponse'],
  notification: ['JSONRPCNotification'],
  error: ['JSONRPCErrorResponse', 'JSONRPCError'],
};

// The end of the object literal that begins at `start`: the bundle's schemas are data without code.
function literalEnd(text, start) {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const char = text[at];
    if (char === '"' || char === "'" || char === '`') {
      for (at++; text[at] !== char; at++) if (text[at] === '\\') at++;
    } else if (char === '{' || char === '[') depth++;
    else if (char === '}' || char === ']') {
      depth--;
      if (depth === 0) return at + 1;
    }
  }
  fail('a schema in the bundle of the conformance package does not end');
}

function schemaOf(revision) {
  const bundle = readFileSync(path.join(options.package, 'dist/index.js'), 'utf8');
  const table = /\{"2025-03-26":([\w$]+),"2025-06-18":([\w$]+),"2025-11-25":([\w$]+),\[[\w$]+\]:([\w$]+)\}/.exec(bundle);
  if (!table) fail('the bundle of the conformance package has no table of schemas where it used to be');
  const name = table[1 + ['2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'].indexOf(revision)];
  if (!name || name === table[0]) fail(`the conformance package has no schema of ${revision}`);
  const start = bundle.indexOf(`${name}={$schema:`) + name.length + 1;
  return vm.runInNewContext(`(${bundle.slice(start, literalEnd(bundle, start))})`);
}

const require = createRequire(path.join(path.resolve(options.package), 'package.json'));
const schema = JSON.parse(JSON.stringify(schemaOf(options.revision)));
const where = schema.$defs ? '$defs' : 'definitions';
const Ajv = require(schema.$defs ? 'ajv/dist/2020.js' : 'ajv').default;
const ajv = new Ajv({ strict: false, allErrors: true });
require('ajv-formats').default(ajv);
ajv.addFormat('byte', /^[A-Za-z0-9+/]*={0,2}$/);
ajv.addSchema({ ...schema, $id: 'mcp' });

function check(file, names, value) {
  const name = names.find((known) => schema[where][known]);
  if (!name) fail(`${options.revision} has none of ${names.join(', ')}, which ${file} should be`);
  const validate = ajv.getSchema(`mcp#/${where}/${name}`);
  if (!validate(value)) fail(`${file} is no ${name}: ${ajv.errorsText(validate.errors)}`);
}

const files = readdirSync(options.frames).filter((file) => file.endsWith('.json'));
if (files.length < 9) fail(`${options.frames} has ${files.length} frames, expected at least 9`);
for (const file of files) {
  const frame = JSON.parse(readFileSync(path.join(options.frames, file), 'utf8'));
  const what = path.basename(file, '.json');
  if (frame.error) check(file, envelopes.error, frame);
  else if (frame.method) {
    check(file, envelopes.notification, frame);
    check(file, notifications[what] ?? fail(`nothing says what ${file} is`), frame);
  } else {
    check(file, envelopes.result, frame);
    check(file, results[what] ?? fail(`nothing says what ${file} is`), frame.result);
  }
}
// A check that cannot fail proves nothing.
if (ajv.getSchema(`mcp#/${where}/ResourceUpdatedNotification`)({ method: 'notifications/resources/updated', params: {} }))
  fail('the schema takes an update without uri');
console.log(`${files.length} frames of ${options.revision} are valid`);
