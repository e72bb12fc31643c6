// The overview of the nodes of a cluster, on a real server of NATS.

import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Service, expect, until } from './service.mjs';
import { LOOKS, Viewer, options } from './viewer.mjs';

function freePort() {
  return new Promise((done) => {
    const server = createServer();
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

export async function nodes_of_a_cluster_are_shown() {
  const program = process.env.TIDINGS_NATS_SERVER;
  expect(program, 'TIDINGS_NATS_SERVER names no program of a NATS server');
  // Each of its programs is ended with this one.
  process.setMaxListeners(20);
  const port = await freePort();
  const nats = spawn(program, ['-js', '-sd', join(options.dir, 'nats'), '-a', '127.0.0.1', '-p', String(port)], { stdio: 'ignore' });
  process.once('exit', () => nats.kill('SIGKILL'));
  const config = (node) => `[cluster]\nengine = "nats"\nurls = ["nats://127.0.0.1:${port}"]\nreplicas = 1\nnode = "${node}"\n`;
  const [one, two] = ['node-one', 'node-two'].map((name) => new Service(options.tidings, join(options.dir, name)));
  await one.start(config('node-one'));
  await two.start(config('node-two'));
  for (const [name, look] of Object.entries(LOOKS)) {
    const viewer = await Viewer.open(look);
    await viewer.show(one, 'overview');
    const nodes = viewer.page.getByRole('region', { name: 'Cluster' });
    await until('both nodes', async () => (await nodes.locator('tbody tr').count()) === 2);
    const parts = ['node-one this one', 'node-two', 'equal', `127.0.0.1:${two.port}`, 'upkeep: node-', 'takes changes', 'may be lost with the power'];
    let text;
    // A node tells its address and its lists some seconds after its start.
    const complete = async () => {
      text = await nodes.textContent();
      return parts.every((part) => text.includes(part)) && !text.includes('other ');
    };
    await until(`${name}: ${parts}`, complete).catch((error) => expect(false, `${error.message}: ${text}`));
    await viewer.picture(`${name}-nodes`);
    await viewer.check(`${name} nodes`);
    expect(viewer.complaints.length === 0, viewer.complaints.join(' | '));
    await viewer.close();
  }
  const viewer = await Viewer.open();
  await viewer.show(one, 'overview');
  const rows = viewer.page.getByRole('region', { name: 'Cluster' }).locator('tbody tr');
  await until('both nodes', async () => (await rows.count()) === 2);
  await two.end();
  await until('the end of one', async () => (await rows.count()) === 1);
  nats.kill('SIGKILL');
  await viewer.page.getByText('The log of the cluster is not reached').waitFor();
  await viewer.close();
  await one.end('SIGKILL');
}

/** A service that is alone shows no nodes, and is asked for none. */
export async function service_that_is_alone_shows_no_nodes(service) {
  const viewer = await Viewer.open();
  const asked = [];
  viewer.page.on('request', (request) => asked.push(new URL(request.url()).pathname));
  await viewer.show(service, 'overview');
  await until('the second look', () => asked.filter((path) => path === '/v1/sessions').length > 1);
  expect(!asked.includes('/v1/cluster'), 'it was asked for a cluster');
  expect((await viewer.page.getByRole('region', { name: 'Cluster' }).count()) === 0, 'it shows a cluster');
  await viewer.close();
}
