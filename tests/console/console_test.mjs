// SPDX-License-Identifier: Apache-2.0
// The console in Debian's Chromium, against a real kube-apiserver, as users use it.
//   node --test tests/console/console_test.mjs
// TESSERA_BIN: folder of the programs; TESSERA_WEB: folder with the packages of web/package.json;
// TESSERA_SCREENSHOTS: where to keep pictures of the pages.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { homedir, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ApiServer, freePort, kubernetesProgram, waitFor } from './apiserver.mjs';

const kPrometheus = join(process.env.TESSERA_CACHE ?? join(homedir(), '.cache', 'tessera'), 'prometheus/usr/bin');
const kChromium = '/usr/bin/chromium';
const kBin = resolve(process.env.TESSERA_BIN ?? 'build/release/bin');
const kWeb = resolve(process.env.TESSERA_WEB ?? 'build/release/web');

function whyNot() {
  if (!kubernetesProgram()) return 'Kubernetes is not built: run scripts/quickstart, or testcluster up, once';
  if (!existsSync(kChromium)) return `${kChromium} is missing: install the Debian package chromium`;
  if (!existsSync(join(kWeb, 'node_modules/playwright-core'))) return 'the web page was built without npm';
  return '';
}

const skip = whyNot();
if (skip) {
  // CTest shows the line and counts the test as skipped.
  console.log(`SKIPPED: ${skip}`);
  process.exit(77);
}

const require = createRequire(join(kWeb, 'package.json'));
const { chromium } = require('playwright-core');
const axePath = require.resolve('axe-core/axe.min.js');

const kEvil = '<img src=x onerror=window.hacked=1>';
const kGiB = 2 ** 30;
const tokens = {};
let api, browser, consoleProcess, base, mainBase;

async function start(program, args, env = {}) {
  const child = spawn(join(kBin, program), args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  child.out = child.log = '';
  child.stdout.on('data', (text) => (child.out += text));
  child.stderr.on('data', (text) => (child.log += text));
  child.once('exit', (code) => (child.code = code));
  child.once('error', (error) => {
    child.code = -1;
    child.log += error.message;
  });
  return child;
}

async function stopConsole(child) {
  if (child.code !== undefined) return;
  const gone = new Promise((done) => child.once('exit', done));
  child.kill('SIGTERM');
  await gone;
}

// A request without a browser.
function raw(method, path, headers = {}, body = undefined) {
  return new Promise((done, fail) => {
    const sent = request(`${base}${path}`, { method, headers }, (response) => {
      let text = '';
      let bytes = 0;
      response.on('data', (part) => ((text += part), (bytes += part.length)));
      response.on('end', () => done({ status: response.statusCode, headers: response.headers, text, bytes }));
    });
    sent.on('error', fail);
    sent.end(body);
  });
}

async function fillCluster() {
  const healthy = {};
  await api.node('n1', Array(8).fill(healthy));
  await api.node('n2', [...Array(7).fill(healthy), { unhealthy: 'XID 79: GPU has fallen off the bus' }]);
  await api.node('n3', Array(4).fill(healthy), 'serve');
  for (const name of ['team-a', 'team-b', 'tessera-system']) await api.namespace(name);
  await api.pod('team-a', 'train', { 'nvidia.com/gpu': '2' }, {
    node: 'n1', gpus: [0, 1].map((i) => ({ gpu: `GPU-n1-${i}`, milli: 1000, bytes: 80 * kGiB })),
  });
  await api.pod('team-b', 'infer', { 'tencent.com/vcuda-core': '30', 'tencent.com/vcuda-memory': '80' }, {
    node: 'n3', gpus: [{ gpu: 'GPU-n3-0', milli: 300, bytes: 20 * kGiB }],
  });
  await api.pod('team-a', 'too-big', { 'nvidia.com/gpu': '16' });
  await api.pod('team-a', 'forged', { 'nvidia.com/gpu': '1' }, { labels: { app: 'x' } });
  await api.must('POST', '/api/v1/namespaces/kube-system/configmaps', {
    apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'gpuquota' },
    data: { gpu_quota: JSON.stringify({ 'team-a': { quota: { A100: 4 } } }) },
  });
}

async function makeAccounts() {
  const view = [
    { apiGroups: [''], resources: ['nodes', 'pods'], verbs: ['get', 'list', 'watch'] },
    { apiGroups: [''], resources: ['configmaps'], resourceNames: ['gpuquota'], verbs: ['get', 'list', 'watch'] },
  ];
  await api.role('console-view', view);
  await api.role('write-pods', [
    { apiGroups: [''], resources: ['pods'], verbs: ['create', 'get', 'list'] },
    { apiGroups: ['apps'], resources: ['deployments'], verbs: ['create'] },
  ]);
  await api.role('change-nodes', [
    { apiGroups: [''], resources: ['nodes'], verbs: ['get', 'patch'] },
    { apiGroups: [''], resources: ['namespaces'], verbs: ['get'] },
    { apiGroups: [''], resources: ['pods/eviction'], verbs: ['create'] },
    { apiGroups: ['apps'], resources: ['daemonsets'], verbs: ['list'] },
    { apiGroups: [''], resources: ['configmaps'], resourceNames: ['gpuquota'], verbs: ['get', 'update'] },
  ]);
  await api.role('list-nodes', [{ apiGroups: [''], resources: ['nodes'], verbs: ['list'] }]);
  await api.role('read-agents', [
    { apiGroups: [''], resources: ['pods'], verbs: ['list'] },
    { apiGroups: [''], resources: ['pods/proxy'], verbs: ['get'] },
  ]);
  for (const name of ['console', 'viewer', 'tenant', 'nobody', 'keeper']) tokens[name] = await api.account('default', name);
  await api.bind('change-nodes', 'default/keeper');
  for (const name of ['console', 'viewer', 'keeper']) await api.bind('console-view', `default/${name}`);
  await api.bind('write-pods', 'default/viewer', 'team-a');
  await api.bind('write-pods', 'default/tenant', 'team-b');
}

// Starts a console; requests of `raw` and pages go there.
async function startConsole(...flags) {
  const port = await freePort();
  base = `http://127.0.0.1:${port}`;
  const child = await start('tessera-console', ['--listen', `127.0.0.1:${port}`, '--kubeconfig', api.kubeconfig(tokens.console), ...flags]);
  await waitFor('the console', async () => (await raw('GET', '/api/v1/cluster', { Authorization: `Bearer ${tokens.viewer}` })).status === 200);
  return child;
}

// A console with other flags, until the test ends.
async function withConsole(t, ...flags) {
  const child = await startConsole(...flags);
  t.after(async () => {
    base = mainBase;
    await stopConsole(child);
  });
}

before(async () => {
  api = await ApiServer.start();
  await fillCluster();
  await makeAccounts();
  consoleProcess = await startConsole();
  mainBase = base;
  browser = await chromium.launch({ executablePath: kChromium, args: ['--no-sandbox', '--disable-gpu'] });
}, { timeout: 240_000 });

after(async () => {
  await browser?.close();
  if (consoleProcess) await stopConsole(consoleProcess);
  await api?.stop();
}, { timeout: 60_000 });

// A page whose errors, and requests to other servers, fail the test.
async function openPage(t, options = {}) {
  const own = base;  // tests change it
  const context = await browser.newContext({ locale: 'en-US', viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const problems = [];
  page.on('pageerror', (error) => problems.push(`error: ${error.message}`));
  page.on('console', (line) => line.text().includes('Content Security Policy') && problems.push(line.text()));
  page.on('request', (sent) => {
    if (!sent.url().startsWith(own) && !sent.url().startsWith('blob:')) problems.push(`request to ${sent.url()}`);
  });
  t.after(async () => {
    await picture(page, `last-${t.name.replaceAll(/[^a-z0-9]+/gi, '-')}`);
    await context.close();
    assert.deepEqual(problems, []);
  });
  return page;
}

async function logIn(page, token) {
  await page.goto(base);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
}

async function openAs(t, token, options) {
  const page = await openPage(t, options);
  await logIn(page, token);
  await page.getByRole('link', { name: 'Workloads', exact: true }).waitFor();
  return page;
}

async function checkAxe(page, name) {
  // The policy of the page forbids inline scripts; this runs in the debugger's world.
  await page.evaluate(require('node:fs').readFileSync(axePath, 'utf8') + ';0');
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return result.violations.map((v) => `${name}: ${v.id}: ${v.nodes.map((n) => n.target.join(' ')).slice(0, 3).join('; ')}`);
}

// How each GPU of a node looks on the map: the color of its left edge, as a variable of app.css or
// "striped"; its sign; and "pale" if it is translucent.
async function cellsOf(page, node, gpus) {
  return page.evaluate(([name, count]) => {
    const card = document.querySelector(`[data-node="${name}"]`);
    const drawing = card.parentElement.querySelector('svg.cells');
    const left = Math.round(card.getBoundingClientRect().left - drawing.getBoundingClientRect().left + 9);
    const top = Math.round(card.getBoundingClientRect().top - drawing.getBoundingClientRect().top + 27);
    const probe = document.body.appendChild(document.createElement('i'));
    const colors = ['used', 'free', 'bad-bg', 'warn', 'good', 'bad', ...Array.from({ length: 12 }, (_, i) => `tenant${i}`)].map((color) => {
      probe.style.color = `var(--${color})`;
      return [getComputedStyle(probe).color, color];
    });
    probe.remove();
    return Array.from({ length: count }, (_, gpu) => {
      const at = (x, y) => new DOMPoint(left + gpu * 18 + x, top + y);
      const paths = [...drawing.querySelectorAll('path')];
      const edge = paths.findLast((path) => path.isPointInFill(at(1, 8)));
      const { fill, opacity } = getComputedStyle(edge);
      const color = fill.startsWith('url(') ? 'striped' : new Map(colors).get(fill) ?? fill;
      const crossed = paths.some((path) => getComputedStyle(path).stroke !== 'none' && path.isPointInStroke(at(8, 8)));
      const unknown = paths.some((path) => getComputedStyle(path).stroke !== 'none' && path.isPointInStroke(at(5.5, 6.2)));
      return `${color}${crossed ? ' ×' : unknown ? ' ?' : ''}${Number(opacity) < 1 ? ' pale' : ''}`;
    });
  }, [node, gpus]);
}

// Waits until the GPUs of a node look like this: the page draws nodes and colors some frames after an action.
function cellsAre(page, node, expected) {
  return waitFor(`the cells of ${node}`, async () => {
    assert.deepEqual(await cellsOf(page, node, expected.length), expected);
    return true;
  });
}

async function picture(page, name) {
  const folder = process.env.TESSERA_SCREENSHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`) });
}

test('a user logs in and sees the map of the cluster', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.getByText('3 nodes', { exact: true }).waitFor();
  await page.getByText('20 GPUs', { exact: true }).waitFor();
  await page.getByText('1 partly used', { exact: true }).waitFor();
  await page.getByText('1 unhealthy', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'n1: 2 of 8 GPUs in use, 0 unhealthy' }).waitFor();
  await picture(page, 'map');
  await page.getByLabel('Filter').fill('serve');
  await waitFor('a single node', async () => (await page.locator('.card').count()) === 1);
  await page.getByLabel('Filter').fill('');
  await page.getByLabel('Color by').selectOption('Namespace');
  await page.getByText('team-b', { exact: true }).waitFor();
});

test('the map colors GPUs by what a user chooses, in both themes', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.getByRole('link', { name: 'n1: 2 of 8 GPUs in use, 0 unhealthy' }).waitFor();
  const free = (count) => Array(count).fill('free');
  await cellsAre(page, 'n1', ['used', 'used', ...free(6)]);
  await cellsAre(page, 'n2', [...free(7), 'bad-bg ×']);
  await cellsAre(page, 'n3', ['used', ...free(3)]);
  await page.getByLabel('Color by').selectOption('Namespace');
  const [own, other] = await waitFor('colors by namespace', async () => {
    const used = [(await cellsOf(page, 'n1', 8))[0], (await cellsOf(page, 'n3', 4))[0]];
    return used.every((color) => /^tenant\d+$/.test(color)) && used;
  });
  assert.notEqual(own, other);
  await cellsAre(page, 'n1', [own, own, ...free(6)]);
  await page.getByLabel('Color by').selectOption('Health');
  await cellsAre(page, 'n2', [...Array(7).fill('good'), 'bad-bg ×']);
  await page.getByRole('button', { name: 'Dark colors' }).click();
  await cellsAre(page, 'n2', [...Array(7).fill('good'), 'bad-bg ×']);
  await page.getByLabel('Color by').selectOption('Allocation');
  await page.getByLabel('Filter').fill('n1');
  await waitFor('a single node', async () => (await page.locator('.card').count()) === 1);
  await cellsAre(page, 'n1', ['used', 'used', ...free(6)]);
});

test('the map works with the keyboard alone', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await waitFor('all nodes', async () => (await page.locator('.card').count()) === 3);
  await page.locator('.card').first().focus();
  const name = () => page.evaluate(() => document.activeElement.dataset.node);
  const first = await name();
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await name(), first);
  await page.keyboard.press('ArrowLeft');
  assert.equal(await name(), first);
  // To the group below, and back.
  await page.keyboard.press('ArrowDown');
  assert.equal(await name(), 'n1');
  await page.keyboard.press('ArrowUp');
  assert.equal(await name(), first);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: first, exact: true }).waitFor();
});

test('the focus stays with its node when nodes before it appear', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.locator('[data-node=n2]').focus();
  await api.node('n0', [{}, {}]);
  t.after(() => api.must('DELETE', '/api/v1/nodes/n0'));
  await page.getByRole('link', { name: /^n0: / }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.dataset.node), 'n2');
});

test('a node shows its GPUs, an XID, holders and its topology', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/node/n2`);
  await page.getByText('XID 79: GPU has fallen off the bus').waitFor();
  await page.locator('.topology svg').waitFor();
  // Two groups of four GPUs, each fully connected.
  assert.equal(await page.locator('line.nvlink').count(), 12);
  await picture(page, 'node');
  await page.goto(`${base}/#/node/n1`);
  await page.getByRole('link', { name: 'team-a/train' }).first().waitFor();
});

// The answers are this test's own, because no agent runs here; tests/e2e reads from a real one.
test('a node shows what its GPUs do and what containers use of them', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/node/n3`);
  await page.getByText('no tessera-agent runs on node n3').waitFor();
  let utilization = 30;
  const use = {
    namespace: 'team-b', pod: 'infer', container: 'main', uuid: 'GPU-n3-0', milli: 300, limited: true,
    memory: { granted: 20 * kGiB, limit: 20 * kGiB, used: 5 * kGiB, peak: 7 * kGiB },
    used_milli: 290, limit_milli: 300, waiting_milli: 120, refused: 2,
  };
  let answer = () => ({ json: {
    gpus: { 'GPU-n3-0': { utilization: utilization++, temperature: 61, power: 212.4 } },
    containers: [use, { namespace: 'team-b', pod: 'free', container: 'main', uuid: 'GPU-n3-1', milli: 1000, memory: { granted: 80 * kGiB }, limited: false }],
    complete: true,
  } });
  await page.route('**/api/v1/nodes/n3/usage', (route) => route.fulfill(answer()));
  await page.getByRole('row', { name: /30 % 61 °C 212 W/ }).waitFor();
  await page.getByRole('row', { name: /team-b\/infer main 0 0.29\/0.3 12 % 5 GiB\/20 GiB 7 GiB 2 allocations refused/ }).waitFor();
  await page.getByRole('row', { name: /team-b\/free main 1 1 – 80 GiB – not limited/ }).waitFor();
  await page.getByRole('row', { name: /32 % 61 °C/ }).waitFor();
  // One curve for the GPU and one for the limited container, with its limit as a line.
  assert.equal(await page.locator('.sparkline polygon').count(), 2);
  assert.ok((await page.locator('.gpu-use polygon').getAttribute('points')).split(' ').length >= 5);
  await picture(page, 'usage');
  assert.deepEqual(await checkAxe(page, 'usage'), []);
  answer = () => ({ status: 403, json: { code: 'PERMISSION_DENIED', error: 'pods "x" is forbidden' } });
  await page.getByText('Ask an administrator for Role tessera-view-usage').waitFor();
});

// The values are this test's own, because no agent runs here; node_gauges_test.cc has the server's part.
test('the map shows what agents measure, what is old and what is unknown', async (t) => {
  const viewer = await openAs(t, tokens.viewer);
  await viewer.getByLabel('Color by').selectOption('Utilization');
  await viewer.getByText('Ask an administrator for Role tessera-view-usage').waitFor();
  await api.bind('read-agents', 'default/keeper', 'tessera-system');
  let page = await openAs(t, tokens.keeper);
  await page.getByLabel('Color by').selectOption('Utilization');
  await page.getByText('give no values: no tessera-agent runs on node n').waitFor();
  await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 0 unhealthy, utilization unknown' }).waitFor();
  await picture(page, 'gauges-unknown');

  page = await openAs(t, tokens.keeper);
  const asked = [];
  await page.route('**/api/v1/gauges', (route) => {
    asked.push(route.request().postDataJSON().nodes.sort().join());
    return route.fulfill({ json: { nodes: {
      n1: { age: 0.5, gpus: { 'GPU-n1-0': [90, 85], 'GPU-n1-1': [10, 62], 'GPU-n1-2': [null, 40] } },
      n2: { error: 'no route to host' },
      n3: { age: 100, gpus: { 'GPU-n3-0': [30, 50] }, error: 'no route to host' },
    } } });
  });
  const asksSince = Date.now();
  await page.getByLabel('Color by').selectOption('Utilization');
  await page.getByRole('link', { name: 'n1: 2 of 8 GPUs in use, 0 unhealthy, utilization 50 % on average, 90 % at most' }).waitFor();
  await page.getByRole('link', { name: 'n2: 0 of 8 GPUs in use, 1 unhealthy, utilization unknown' }).waitFor();
  await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 0 unhealthy, utilization 30 % on average, 30 % at most, older than a minute' }).waitFor();
  const unknown = (count) => Array(count).fill('free ?');
  await cellsAre(page, 'n1', ['used', 'used', ...unknown(6)]);
  await cellsAre(page, 'n2', [...unknown(7), 'bad-bg ×']);
  await waitFor('a pale cell', async () => (await cellsOf(page, 'n3', 4))[0].endsWith(' pale'));
  assert.deepEqual(await checkAxe(page, 'utilization'), []);
  await picture(page, 'utilization');
  // One question for all nodes, and none for values younger than ten seconds. Those of n1 are half a second old.
  await page.waitForTimeout(3000);
  const later = Math.floor((Date.now() - asksSince) / 9000);
  assert.equal(asked[0], 'n1,n2,n3');
  assert.ok(asked.length <= 1 + 2 * later, `the page asked for ${asked.join('; ')}`);
  await page.getByLabel('Color by').selectOption('Temperature');
  await page.getByRole('link', { name: /^n1: .*, 85 °C at most$/ }).waitFor();
  await page.getByText('80 °C and more', { exact: true }).waitFor();
  await cellsAre(page, 'n1', ['bad', 'warn', 'good', ...unknown(5)]);
  await page.getByRole('button', { name: 'Dark colors' }).click();
  await page.getByRole('button', { name: '中文 (Chinese)' }).click();
  await page.getByText('80 °C 及以上', { exact: true }).waitFor();
  assert.deepEqual(await checkAxe(page, 'temperature, dark'), []);
  await picture(page, 'temperature-dark');
  await page.getByRole('link', { name: /^n2.*温度未知$/ }).waitFor();
  // Other colors ask for nothing.
  const questions = asked.length;
  await page.getByLabel('着色依据').selectOption('健康状况');
  await page.waitForTimeout(1500);
  assert.equal(asked.length, questions);
});

test('a GPU that fails is shown without a reload', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 0 unhealthy' }).waitFor();
  await api.node('n3', [{}, {}, {}, { unhealthy: 'XID 48: double-bit ECC error' }], 'serve');
  await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 1 unhealthy' }).waitFor();
  await api.node('n3', [{}, {}, {}, {}], 'serve');
  await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 0 unhealthy' }).waitFor();
});

// Over HTTP/1.1 a browser opens six connections to a host, and each page's events take one.
test('over HTTPS more than six pages of one browser are live', async (t) => {
  const port = await freePort();
  const child = await start('tessera-console', [
    '--listen', `127.0.0.1:${port}`, '--kubeconfig', api.kubeconfig(tokens.console),
    '--tls-cert-file', join(api.dir, 'tls.crt'), '--tls-private-key-file', join(api.dir, 'tls.key'),
  ]);
  t.after(() => stopConsole(child));
  const context = await browser.newContext({ locale: 'en-US', ignoreHTTPSErrors: true });
  t.after(() => context.close());
  const url = `https://127.0.0.1:${port}/`;
  const pages = [];
  for (let i = 0; i < 8; ++i) {
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    await waitFor('the page', () => page.goto(url));
    if (i === 0) {
      await page.getByLabel('Token').fill(tokens.viewer);
      await page.getByRole('button', { name: 'Log in' }).click();
    }
    await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 0 unhealthy' }).waitFor();
    pages.push(page);
  }
  assert.equal(await pages[0].evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol), 'h2');
  await api.node('n3', [{}, {}, {}, { unhealthy: 'XID 48: double-bit ECC error' }], 'serve');
  t.after(() => api.node('n3', [{}, {}, {}, {}], 'serve'));
  for (const page of pages) await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 1 unhealthy' }).waitFor();
});

test('a waiting pod is explained', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/workloads`);
  await page.getByRole('row', { name: /too-big waiting/ }).waitFor();
  await picture(page, 'workloads');
  await page.getByRole('link', { name: 'too-big' }).click();
  await page.getByRole('heading', { name: 'Why too-big waits' }).waitFor();
  await page.getByText('Fits on none of 3 nodes').waitFor();
  await page.getByText('too few GPUs').first().waitFor();
  await picture(page, 'explain');
});

test('workloads are found by name, node and state, and a long list grows as one scrolls', async (t) => {
  await api.namespace('crowd');
  const names = Array.from({ length: 110 }, (_, i) => `many-${i}`);
  t.after(() => Promise.all(names.map((name) => api.request('DELETE', `/api/v1/namespaces/crowd/pods/${name}?gracePeriodSeconds=0`))));
  for (const name of names) await api.pod('crowd', name, { 'nvidia.com/gpu': '16' });
  const page = await openAs(t, tokens.viewer);
  await page.getByRole('link', { name: 'Workloads', exact: true }).click();
  const rows = page.locator('tbody tr');
  const shows = (count) => waitFor(`${count} rows`, async () => (await rows.count()) === count);
  await page.getByLabel('Filter').fill('crowd/MANY-');
  for (const [count, more] of [[30, 80], [60, 50], [90, 20], [100, 10]]) {
    await shows(count);
    await page.getByText(`${more} more`, { exact: false }).scrollIntoViewIfNeeded();
  }
  await page.getByLabel('Filter').fill('many-109');
  await shows(1);
  await page.getByRole('row', { name: /crowd many-109 waiting/ }).waitFor();
  await page.getByLabel('Filter').fill('placed');
  await page.getByRole('row', { name: /team-b infer placed/ }).waitFor();
  await shows(2);
  await page.getByLabel('Filter').fill('infer n3');
  await shows(1);
  await page.getByLabel('Filter').fill('infer n4');
  await page.getByText('Nothing matches').waitFor();
});

test('the focus stays with its pod when pods before it appear', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/workloads`);
  await page.getByRole('link', { name: 'too-big' }).focus();
  await api.pod('team-a', 'another', { 'nvidia.com/gpu': '16' });
  t.after(() => api.must('DELETE', '/api/v1/namespaces/team-a/pods/another?gracePeriodSeconds=0'));
  await page.getByRole('link', { name: 'another' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), 'too-big');
});

test('a user creates a workload with the form', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill('from-form');
  await page.getByLabel('Namespace').fill('team-a');
  await page.getByLabel('Image').fill('cuda:12');
  for (const share of ['0.305', '1.5', '0']) {
    await page.getByLabel('Share of compute').fill(share);
    await page.getByText('From 0.01 to 0.99 in steps of 0.01.').waitFor();
  }
  await page.getByLabel('Share of compute').fill('0.5');
  for (const memory of ['1.5', '0', '']) {
    await page.getByLabel('Memory').fill(memory);
    await page.getByText('From 1 to 4096 blocks of 256 MiB').waitFor();
    await page.getByLabel('Memory').fill('4');
    await page.getByText('From 1 to 4096 blocks of 256 MiB').waitFor({ state: 'detached' });
  }
  await page.getByLabel('Memory').fill('8');
  await page.getByText(/Fits on 3 of 3 nodes/).waitFor();
  await page.getByText(/Quota of team-a: A100: 2 used, 2 left/).waitFor();
  await waitFor('the manifest', async () => /vcuda-core: 50[\s\S]*vcuda-memory: 8/.test(await page.getByLabel('Manifest').inputValue()));
  await picture(page, 'create');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByText('Created team-a/from-form.').waitFor();
  // A second click would be an error.
  assert.equal(await page.getByRole('button', { name: 'Create' }).isDisabled(), true);
  const made = await api.request('GET', '/api/v1/namespaces/team-a/pods/from-form');
  assert.deepEqual(made.body.spec.containers[0].resources.limits, { 'tencent.com/vcuda-core': '50', 'tencent.com/vcuda-memory': '8' });
  await page.getByRole('link', { name: 'Show it' }).click();
  await page.getByRole('heading', { name: 'Why from-form waits' }).waitFor();
});

test('a field that the API server does not know is an error at the text', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill('train');
  await page.getByLabel('Namespace').fill('team-a');
  await page.getByLabel('Image').fill('x');
  await page.getByText('The namespace has an object with this name already.').waitFor();
  const create = page.getByRole('button', { name: 'Create' });
  assert.equal(await create.isDisabled(), true);
  await page.getByLabel('Name', { exact: true }).fill('strict');
  await page.waitForFunction(() => !document.querySelector('button[type=submit]').disabled);
  const yaml = await page.getByLabel('Manifest').inputValue();
  for (const [part, wrong, message] of [
    ['    image: x', '    image: x\n    imagePulPolicy: Always', 'line 12: unknown field "spec.containers[0].imagePulPolicy"'],
    ['kind: Pod', 'kind: Pod\nreplica: 3', 'line 3: unknown field "replica"'],
    ['  containers:', '  conteiners:', 'line 10: unknown field "spec.conteiners"'],
    ['- name: main', '- name: Main', 'spec.containers[0].name: Invalid value: "Main"'],
  ]) {
    await page.getByLabel('Manifest').fill(yaml.replace(part, wrong));
    await waitFor(message, async () => (await page.locator('#yaml-error').textContent()).includes(message));
    assert.doesNotMatch(await page.locator('#yaml-error').textContent(), /POST|HTTP|BadRequest/);
    assert.equal(await create.isDisabled(), true);
  }
  const headers = { Authorization: `Bearer ${tokens.viewer}`, 'Content-Type': 'application/json' };
  const applied = await raw('POST', '/api/v1/apply', headers, JSON.stringify({ yaml: yaml.replace('kind: Pod', 'kind: Pod\nreplica: 3') }));
  assert.equal(applied.status, 400);
  assert.match(JSON.parse(applied.text).error, /^line 3: unknown field "replica"/);
  assert.equal((await api.request('GET', '/api/v1/namespaces/team-a/pods/strict')).status, 404);
});

// What a kubelet would write of a pod's containers.
async function reportRun(namespace, name, status) {
  await api.must('PATCH', `/api/v1/namespaces/${namespace}/pods/${name}/status`, { status }, 'application/merge-patch+json');
}
async function writeEvent(namespace, kind, name, reason, message) {
  await api.must('POST', `/api/v1/namespaces/${namespace}/events`, {
    apiVersion: 'v1', kind: 'Event', metadata: { name: `${name}.${reason.toLowerCase()}` }, involvedObject: { kind, namespace, name },
    type: 'Warning', reason, message, count: 3, lastTimestamp: new Date().toISOString().replace(/\.\d+/, ''),
  });
}

test('a user watches a new workload run, fail and end', async (t) => {
  const remove = [];
  t.after(() => Promise.all(remove.map((path) => api.request('DELETE', `${path}?gracePeriodSeconds=0`))));
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill('watched');
  await page.getByLabel('Namespace').fill('team-a');
  await page.getByLabel('Image').fill('cuda:12');
  remove.push('/api/v1/namespaces/team-a/pods/watched');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByText('Created team-a/watched.').waitFor();
  await page.getByText('pending', { exact: true }).waitFor();
  await page.getByText('you lack the right to list events in namespace team-a').waitFor();
  await page.getByRole('link', { name: 'Show it' }).click();
  const run = page.getByRole('region', { name: 'How it runs' });
  const main = { name: 'main', image: 'cuda:12', imageID: '', ready: false, restartCount: 0 };
  await reportRun('team-a', 'watched', { containerStatuses: [{ ...main, state: { waiting: { reason: 'ImagePullBackOff', message: 'Back-off pulling image' } } }] });
  await run.getByRole('row', { name: 'main ImagePullBackOff 0 Back-off pulling image' }).waitFor();
  await api.role('list-events', [{ apiGroups: [''], resources: ['events'], verbs: ['list'] }]);
  await api.bind('list-events', 'default/viewer', 'team-a');
  await writeEvent('team-a', 'Pod', 'watched', 'Failed', `no image ${kEvil}`);
  await run.getByRole('row', { name: /Failed ×3 no image <img/ }).waitFor();
  const loop = { ...main, restartCount: 4, state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState: { terminated: { exitCode: 137, reason: 'OOMKilled' } } };
  await reportRun('team-a', 'watched', { phase: 'Running', containerStatuses: [loop] });
  await run.getByRole('row', { name: 'main CrashLoopBackOff 4 ended before: OOMKilled (exit code 137)' }).waitFor();
  assert.deepEqual(await checkAxe(page, 'run'), []);
  await picture(page, 'run');
  await page.getByRole('link', { name: 'Workloads', exact: true }).click();
  await page.getByRole('row', { name: /^team-a watched waiting 4 / }).waitFor();
  // A pod with a node, live.
  await reportRun('team-b', 'infer', { phase: 'Running', containerStatuses: [{ ...main, state: { running: {} } }] });
  await page.getByRole('row', { name: /^team-b infer running 0 / }).waitFor();
  await reportRun('team-b', 'infer', { containerStatuses: [loop] });
  await page.getByRole('row', { name: /^team-b infer running 4 .* CrashLoopBackOff$/ }).waitFor();
  await page.getByRole('link', { name: 'watched' }).click();

  await reportRun('team-a', 'watched', { phase: 'Failed', containerStatuses: [{ ...main, restartCount: 4, state: { terminated: { exitCode: 1, reason: 'Error' } } }] });
  await run.getByRole('row', { name: 'main Error (exit code 1) 4' }).waitFor();
  await page.goto(`${base}/#/workloads`);
  await page.getByRole('button', { name: 'Show ended pods' }).click();
  const ended = page.getByRole('region', { name: 'Ended pods' });
  await ended.getByRole('row', { name: /team-a watched failed 4 .* Error \(exit code 1\)/ }).waitFor();
  assert.deepEqual(await checkAxe(page, 'ended pods'), []);
  await ended.getByRole('link', { name: 'watched' }).click();
  await page.getByText('failed', { exact: true }).waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
  const tenant = await raw('GET', '/api/v1/ended', { Authorization: `Bearer ${tokens.tenant}` });
  assert.deepEqual(JSON.parse(tenant.text), { pods: [], complete: true });
  assert.equal((await raw('GET', '/api/v1/run?namespace=team-a&name=watched', { Authorization: `Bearer ${tokens.tenant}` })).status, 403);
  assert.equal((await raw('GET', '/api/v1/run?namespace=team-a', { Authorization: `Bearer ${tokens.viewer}` })).status, 400);
});

test('a new Deployment shows its pods, and why there are none', async (t) => {
  const remove = ['/apis/apps/v1/namespaces/team-a/deployments/several', '/api/v1/namespaces/team-a/pods/several-1-a'];
  t.after(() => Promise.all(remove.map((path) => api.request('DELETE', `${path}?gracePeriodSeconds=0`))));
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill('several');
  await page.getByLabel('Namespace').fill('team-a');
  await page.getByLabel('Image').fill('cuda:12');
  await page.getByLabel('Replicas').fill('2');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByText('Created team-a/several.').waitFor();
  await page.getByText('It has no pods yet.').waitFor();
  await writeEvent('team-a', 'ReplicaSet', 'several-1', 'FailedCreate', 'exceeded quota');
  await page.getByRole('row', { name: /FailedCreate ×3 exceeded quota/ }).waitFor();
  await api.pod('team-a', 'several-1-a', { 'nvidia.com/gpu': '1' }, { labels: { app: 'several' } });
  await page.getByRole('row', { name: 'several-1-a pending – 0' }).waitFor();
  assert.deepEqual(await checkAxe(page, 'new Deployment'), []);
});

test('form and manifest follow each other', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill('Bad Name');
  await page.getByLabel('Image').fill('x');
  await page.getByText('lower-case letters, digits and').waitFor();
  assert.equal(await page.getByLabel('Name', { exact: true }).getAttribute('aria-invalid'), 'true');
  await page.getByLabel('Name', { exact: true }).fill('good');
  await page.getByLabel('Namespace').fill('team-a');
  await page.getByText(/Fits on/).waitFor();
  await page.waitForFunction(() => !document.querySelector('button[type=submit]').disabled);
  const yaml = await page.getByLabel('Manifest').inputValue();
  await page.getByLabel('Manifest').fill(yaml.replace('vcuda-core: 30', 'vcuda-core: 70').replaceAll('good', 'better'));
  await page.waitForFunction(() => document.querySelector('#name').value === 'better');
  assert.equal(await page.getByLabel('Share of compute').inputValue(), '0.7');
  await page.getByLabel('Manifest').fill('kind: [');
  await page.locator('#yaml-error').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Create' }).isDisabled(), true);
});

test('the form changes its own fields in a manifest and keeps the rest', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill('own');
  await page.getByLabel('Image').fill('x');
  const manifest = page.getByLabel('Manifest');
  const shows = (text) => waitFor('the manifest', async () => (await manifest.inputValue()) === text);
  await waitFor('the manifest', async () => (await manifest.inputValue()) !== '');
  const [main, limits] = (await manifest.inputValue()).split('    resources:\n');
  const written = `${main.replace('app: own', 'app: front')}    args: [--hold]  # an hour\n    resources:\n${limits}  - name: side
    image: y
    env: [{name: A, value: b}]
  nodeSelector: {disk: ssd}
`;
  await manifest.fill(written);
  await page.getByText('The form shows "main".').waitFor();
  await page.getByLabel('Share of compute').fill('0.4');
  await shows(written.replace('vcuda-core: 30', 'vcuda-core: 40'));
  await page.getByLabel('Name', { exact: true }).fill('renamed');
  await page.getByLabel('Image').fill('z');
  const renamed = written.replace('vcuda-core: 30', 'vcuda-core: 40').replace('name: own', 'name: renamed').replace('image: x', 'image: z');
  await shows(renamed);

  const other = renamed.replace(/tencent.com\/vcuda-core: 40\n.*\n/, 'aliyun.com/gpu-mem: 8\n').replace('name: renamed', 'generateName: renamed-');
  await manifest.fill(other);
  await page.getByText('The manifest requests "aliyun.com/gpu-mem: 8", which the form cannot show.').waitFor();
  await page.getByText('The manifest does not have this field.').waitFor();
  assert.equal(await page.getByLabel('Name', { exact: true }).inputValue(), '');
  assert.equal(await page.getByLabel('Whole GPUs').isChecked(), false);
  assert.deepEqual(await checkAxe(page, 'unread fields'), []);
  await page.getByLabel('Replicas').fill('0');
  await page.getByText('A whole number from 1 to 10,000.').waitFor();
  assert.equal(await manifest.inputValue(), other);
  await page.getByLabel('Replicas').fill('1');
  await page.getByLabel('Whole GPUs').check();
  await shows(other.replace('aliyun.com/gpu-mem: 8', 'nvidia.com/gpu: 1'));
});

test('only a manifest that shows the last edit can be created', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill('first');
  await page.getByLabel('Namespace').fill('team-a');
  await page.getByLabel('Image').fill('x');
  const create = page.getByRole('button', { name: 'Create' });
  await page.waitForFunction(() => !document.querySelector('button[type=submit]').disabled);
  let release;
  const held = new Promise((done) => (release = done));
  await page.route('**/api/v1/preview', async (route) => {
    await held;
    await route.continue();
  });
  await page.getByLabel('Name', { exact: true }).fill('second');
  assert.equal(await create.isDisabled(), true);
  release();
  await page.waitForFunction(() => !document.querySelector('button[type=submit]').disabled);
  assert.match(await page.getByLabel('Manifest').inputValue(), /name: second/);
});

test('a user drains a node, and sees which evictions a disruption budget rejects', async (t) => {
  const owner = { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web', uid: '1', controller: true };
  await api.runningPod('team-a', 'web-1', 'n2', { app: 'web' }, owner);
  await api.runningPod('team-a', 'batch-1', 'n2', { app: 'batch' }, owner);
  await api.runningPod('team-a', 'alone', 'n2', { app: 'alone' });
  await api.budget('team-a', 'web', { app: 'web' });
  const removed = ['web-1', 'batch-1', 'alone'].map((name) => `/api/v1/namespaces/team-a/pods/${name}?gracePeriodSeconds=0`);
  t.after(() => Promise.all(removed.map((path) => api.request('DELETE', path))));

  const page = await openAs(t, tokens.keeper);
  await page.goto(`${base}/#/node/n2`);
  await page.getByRole('button', { name: 'Drain, mode…' }).click();
  await page.getByRole('button', { name: 'Preview the drain' }).click();
  await page.getByRole('row', { name: /team-a\/web-1 ReplicaSet\/web – refused by a budget .*disruption budget/ }).waitFor();
  await page.getByRole('row', { name: /team-a\/batch-1 ReplicaSet\/web – would go/ }).waitFor();
  await page.getByRole('row', { name: /team-a\/alone – – stays no controller/ }).waitFor();
  assert.deepEqual(await checkAxe(page, 'drain'), []);
  await picture(page, 'drain');
  const node = async () => (await api.request('GET', '/api/v1/nodes/n2')).body.spec;
  assert.equal((await node()).unschedulable, undefined, 'a preview changes nothing');
  const pod = async (name) => (await api.request('GET', `/api/v1/namespaces/team-a/pods/${name}`)).body.metadata;
  assert.equal((await pod('batch-1')).deletionTimestamp, undefined);

  await page.getByRole('button', { name: 'Cordon and evict' }).click();
  await page.getByRole('row', { name: /team-a\/batch-1 .* evicted/ }).waitFor();
  assert.equal((await node()).unschedulable, true);
  assert.ok((await pod('batch-1')).deletionTimestamp);
  assert.equal((await pod('web-1')).deletionTimestamp, undefined);
  assert.equal((await pod('alone')).deletionTimestamp, undefined);
  await page.getByRole('button', { name: 'Uncordon' }).click();
  await page.getByRole('button', { name: 'Cordon', exact: true }).waitFor();
  assert.equal((await node()).unschedulable, undefined);
});

test('controls that a user may not use say which right is missing', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/node/n2`);
  const cordon = page.getByRole('button', { name: 'Cordon', exact: true });
  await page.getByText('You may not change this: it needs the right to patch nodes. Ask an administrator for it.').waitFor();
  assert.equal(await cordon.isDisabled(), true);
  await page.getByRole('button', { name: 'Drain, mode…' }).click();
  await page.getByText('it needs the right to patch nodes, create pods/eviction.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Preview the drain' }).isDisabled(), true);
  await page.getByText('it needs the right to patch nodes, list daemonsets.apps in tessera-system.').waitFor();
  assert.deepEqual(await checkAxe(page, 'missing rights'), []);
  await page.goto(`${base}/#/quota`);
  await page.getByText('it needs the right to update configmaps gpuquota in kube-system.').waitFor();
  assert.equal(await page.getByRole('row', { name: /team-a A100/ }).getByRole('button').isDisabled(), true);
  assert.equal(await page.getByRole('button', { name: 'Limit another namespace' }).isDisabled(), true);
  assert.deepEqual(await checkAxe(page, 'missing right to change quotas'), []);
});

test('a rejection by the API server is shown in words', async (t) => {
  const page = await openAs(t, tokens.viewer);
  // As if the user lost the rights after the page had read them.
  await page.route('**/api/v1/missing-rights', (route) => route.fulfill({ json: {} }));
  await page.goto(`${base}/#/node/n2`);
  await page.getByRole('button', { name: 'Cordon', exact: true }).click();
  await page.getByText('This did not work: You lack the right to patch nodes. Ask an administrator for it.').waitFor();
  await page.getByRole('button', { name: 'Drain, mode…' }).click();
  await page.getByText(/The modes are unknown: .*You lack the right to list daemonsets in namespace tessera-system/).waitFor();
  await page.goto(`${base}/#/quota`);
  await page.getByRole('row', { name: /team-a A100/ }).getByRole('button').click();
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('You lack the right to update configmaps in namespace kube-system.').waitFor();
});

test('a node without a choice of modes says what is missing', async (t) => {
  const set = '/apis/apps/v1/namespaces/tessera-system/daemonsets/tessera-agent';
  const page = await openAs(t, tokens.keeper);
  for (const [annotations, text] of [
    [undefined, 'add a pool to the resource Tessera if the operator runs, or else with "tessera upgrade --values FILE"'],
    [{ 'meta.helm.sh/release-name': 'tessera' }, 'Helm has installed the agents and its chart has no pools'],
  ]) {
    await api.agents('tessera-agent', '', {}, [], 'vcuda', annotations);
    await page.goto(`${base}/#/node/n1`);
    await page.getByRole('button', { name: 'Drain, mode…' }).click();
    await page.getByText(text).waitFor();
    assert.deepEqual(await checkAxe(page, 'one mode'), []);
    await page.goto(`${base}/#/`);
    await api.must('DELETE', set);
  }
});

test('a user chooses the mode of a node', async (t) => {
  await api.agents('tessera-agent', '', {}, [{ key: 'use', operator: 'NotIn', values: ['training'] }], 'gpu-mem,vcuda');
  await api.agents('tessera-agent-training', 'training', { use: 'training' }, [], 'none');
  const page = await openAs(t, tokens.keeper);
  await page.goto(`${base}/#/node/n1`);
  await page.getByRole('button', { name: 'Drain, mode…' }).click();
  await page.getByLabel(/Whole GPUs and shares nodes in no pool, now/).waitFor();
  await page.getByLabel(/Whole GPUs only pool training/).check();
  await page.getByText('Labels of the node that change: use=training.').waitFor();
  await picture(page, 'mode');
  await page.getByRole('button', { name: 'Change the mode' }).click();
  await page.getByLabel(/Whole GPUs only pool training, now/).waitFor();
  assert.equal((await api.request('GET', '/api/v1/nodes/n1')).body.metadata.labels.use, 'training');
  await page.getByLabel(/nodes in no pool/).check();
  await page.getByText('use (removed)').waitFor();
  await page.getByRole('button', { name: 'Change the mode' }).click();
  await page.getByLabel(/nodes in no pool, now/).waitFor();
  assert.equal((await api.request('GET', '/api/v1/nodes/n1')).body.metadata.labels.use, undefined);
});

test('a GPU in MIG mode without a slice is marked', async (t) => {
  await api.node('n7', [{}, { mig: [] }]);
  t.after(() => api.must('DELETE', '/api/v1/nodes/n7'));
  const page = await openAs(t, tokens.viewer);
  await page.getByRole('link', { name: 'n7: 0 of 1 GPU in use, 0 unhealthy, 1 GPU in MIG mode without a slice' }).waitFor();
  assert.deepEqual(await checkAxe(page, 'MIG on the map'), []);
  await page.goto(`${base}/#/node/n7`);
  await page.getByRole('row', { name: /^1 .* MIG In MIG mode without a slice, so it is not offered/ }).waitFor();
  assert.deepEqual(await checkAxe(page, 'MIG'), []);
});

// The values are this test's own, because no agent runs here.
test('the map says that MIG instances are not measured', async (t) => {
  const slice = (gi) => ({ uuid: `MIG-n8-${gi}`, profile: '3g.40gb', gi, bytes: 40 * kGiB });
  await api.node('n8', [{}, { mig: [slice(1), slice(2)] }]);
  t.after(() => api.must('DELETE', '/api/v1/nodes/n8'));
  await api.request('DELETE', '/apis/rbac.authorization.k8s.io/v1/namespaces/tessera-system/rolebindings/read-agents-default-keeper');
  await api.bind('read-agents', 'default/keeper', 'tessera-system');
  const page = await openAs(t, tokens.keeper);
  await page.route('**/api/v1/gauges', (route) => route.fulfill({ json: { nodes: { n8: { age: 1, gpus: { 'GPU-n8-0': [40, 60] } } } } }));
  await page.getByLabel('Color by').selectOption('Utilization');
  const text = 'NVML measures no utilization of MIG instances';
  await page.getByRole('link', { name: `n8: 0 of 3 GPUs in use, 0 unhealthy, utilization 40 % on average, 40 % at most, ${text}` }).waitFor();
  await page.locator('.legend').getByText(text).waitFor();
  await page.route('**/api/v1/nodes/n8/usage', (route) => route.fulfill({ json: { gpus: { 'GPU-n8-0': { utilization: 40 } }, containers: [], complete: true } }));
  await page.goto(`${base}/#/node/n8`);
  await page.getByRole('row', { name: `1:1 ${text} – –` }).waitFor();
  assert.deepEqual(await checkAxe(page, 'MIG instances'), []);
});

test('a node that joins appears on the page "Add a node"', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.getByRole('link', { name: 'Add a node' }).click();
  await page.getByText('kubeadm token create').waitFor();
  await page.getByText('Waiting for a new node').waitFor();
  await api.node('n6', [{}, {}]);
  t.after(() => api.must('DELETE', '/api/v1/nodes/n6'));
  await page.getByRole('link', { name: 'n6' }).waitFor();
  await page.getByText('2 of 2 GPUs can be used').waitFor();
});

test('a user changes a quota after seeing what follows', async (t) => {
  const page = await openAs(t, tokens.keeper);
  await page.goto(`${base}/#/quota`);
  await page.getByRole('row', { name: /team-a A100 2 2 4/ }).getByRole('button').click();
  await page.getByLabel('GPUs', { exact: true }).fill('1');
  await page.getByText('A100: 2 of 1 GPU in use').waitFor();
  await page.getByText('Above the limit, and going on until they end: train').waitFor();
  assert.deepEqual(await checkAxe(page, 'quota editor'), []);
  await picture(page, 'quota-editor');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByRole('row', { name: /team-a A100 2 -1 1/ }).waitFor();
  const map = await api.request('GET', '/api/v1/namespaces/kube-system/configmaps/gpuquota');
  assert.deepEqual(JSON.parse(map.body.data.gpu_quota), { 'team-a': { quota: { A100: 1 } } });
  await page.getByRole('row', { name: /team-a A100/ }).getByRole('button').click();
  await page.getByLabel('GPUs', { exact: true }).fill('4');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByRole('row', { name: /team-a A100 2 2 4/ }).waitFor();
});

test('a quota of a namespace that does not exist is accepted with a warning', async (t) => {
  const page = await openAs(t, tokens.keeper);
  await page.goto(`${base}/#/quota`);
  await page.getByRole('button', { name: 'Limit another namespace' }).click();
  const namespace = page.locator('#quota-namespace');
  await page.getByLabel('GPUs', { exact: true }).fill('1');
  await namespace.fill('team-zz');
  await page.getByText('The cluster has no namespace "team-zz".').waitFor();
  assert.equal(await namespace.getAttribute('aria-describedby'), 'quota-namespace-warning');
  assert.equal(await page.getByRole('button', { name: 'Apply' }).isDisabled(), false);
  assert.deepEqual(await checkAxe(page, 'no such namespace'), []);
  await namespace.fill('team-b');
  await page.getByText('The cluster has no namespace').waitFor({ state: 'detached' });
  await page.getByText('0.3 of 1 GPU in use', { exact: false }).waitFor();
  assert.equal(await page.locator('.field-warning').count(), 0);
});

test('a Chinese page translates frequent reasons and marks other sentences as English', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.getByRole('button', { name: '中文 (Chinese)' }).click();
  await page.goto(`${base}/#/workloads`);
  const reason = page.getByText('3 个节点中有 0 个可放置:3 个GPU 数量不足');
  await reason.waitFor();
  assert.equal(await reason.evaluate((element) => element.closest('[lang]').lang), 'zh-CN');
  await page.goto(`${base}/#/node/n2`);
  const health = page.getByText('XID 79: GPU has fallen off the bus');
  await health.waitFor();
  assert.equal(await health.evaluate((element) => element.closest('[lang]').lang), 'en');
});

test('a user learns what would make room, and asks what if', async (t) => {
  await api.pod('team-b', 'needs-eight', { 'nvidia.com/gpu': '8' });
  t.after(() => api.request('DELETE', '/api/v1/namespaces/team-b/pods/needs-eight?gracePeriodSeconds=0'));
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/workload/team-b/needs-eight`);
  await page.getByRole('heading', { name: 'What would make room' }).waitFor();
  const room = page.getByRole('region', { name: 'What would make room' });
  await room.getByRole('link', { name: 'team-a/train' }).waitFor();
  await room.getByText(/on n1 \(gpu: 2\) – it could move to 2 other nodes/).waitFor();
  // The nearest nodes, with the GPUs of n1 that are held.
  assert.equal(await page.locator('.near li').first().locator('.gpu').count(), 8);
  await picture(page, 'room');
  const question = page.getByRole('region', { name: 'What if?' });
  await question.getByLabel('Request').selectOption('Whole GPUs');
  await question.getByLabel('Number of GPUs').fill('4');
  await question.getByRole('button', { name: 'Ask' }).click();
  await question.getByText('Fits on 2 of 3 nodes').waitFor();
  await question.getByLabel('Request').selectOption('as it is');
  await question.getByLabel('Without the pod').fill('team-a/train');
  await question.getByRole('button', { name: 'Ask' }).click();
  await question.getByText('Fits on 1 of 3 nodes').waitFor();
  await question.getByLabel('Without the pod').fill('garbage');
  await question.getByText('Want a pod as namespace/name, or nothing.').waitFor();
  assert.equal(await question.getByRole('button', { name: 'Ask' }).isDisabled(), true);
  assert.deepEqual(await checkAxe(page, 'what if'), []);
});

test('GPU-hours are added up by namespace and label, and can be saved', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/quota`);
  const row = page.getByRole('region', { name: 'GPU-hours' }).getByRole('row', { name: /^team-a \d/ });
  await waitFor('two GPUs for some seconds', async () => {
    await page.getByRole('button', { name: 'Load again' }).click();
    return (await row.count()) === 1 && Number((await row.locator('td').first().textContent())) > 0;
  });
  // No agent runs here, so nothing is known about idle time.
  assert.equal(await row.locator('td').nth(1).textContent(), '–');
  await page.getByText(/Idle time is not known/).waitFor();
  await page.getByLabel('By label app.kubernetes.io/name').check();
  await page.getByRole('columnheader', { name: 'app.kubernetes.io/name' }).waitFor();
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download CSV of GPU-hours' }).click(),
  ]);
  const text = require('node:fs').readFileSync(await download.path(), 'utf8');
  assert.match(text, /^namespace,app.kubernetes.io\/name,allocated_gpu_hours,used_gpu_hours,idle_share\r\nteam-a,,0\.\d+,,\r\n/);
});

test('quotas and use are tables that can be saved', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/quota`);
  await page.getByRole('row', { name: /team-a A100 2 2 4/ }).waitFor();
  await picture(page, 'quota');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download CSV', exact: true }).first().click(),
  ]);
  const text = require('node:fs').readFileSync(await download.path(), 'utf8');
  assert.equal(text, 'namespace,model,used,limit,pools\r\nteam-a,A100,2,4,\r\nteam-b,NVIDIA A100-SXM4-80GB,0.3,,\r\n');
});

test('a tenant sees only what the API server allows', async (t) => {
  const page = await openAs(t, tokens.tenant);
  await page.getByText('You may not list nodes').waitFor();
  await picture(page, 'forbidden');
  await page.getByRole('link', { name: 'Workloads', exact: true }).click();
  await page.getByRole('link', { name: 'infer' }).waitFor();
  assert.equal(await page.getByText('team-a').count(), 0);
  const authorization = { Authorization: `Bearer ${tokens.tenant}` };
  const seen = JSON.parse((await raw('GET', '/api/v1/cluster', authorization)).text);
  assert.deepEqual(seen.nodes, []);
  assert.deepEqual(seen.pods.map((pod) => pod.namespace), ['team-b']);
  // What the own pods hold, without a share of GPUs that the user does not see.
  await page.getByRole('link', { name: 'Quota and usage' }).click();
  await page.getByRole('row', { name: /^team-b 1 0.3 20 GiB$/ }).waitFor();
  await page.getByText('The share of all GPUs is hidden, because you may not list nodes').waitFor();
  assert.equal((await raw('GET', '/api/v1/nodes/n1', authorization)).status, 403);
  assert.equal((await raw('GET', '/api/v1/explain?namespace=team-a&name=train', authorization)).status, 404);
  // The quota of another namespace stays hidden, and is not applied.
  const form = { name: 'x', namespace: 'team-a', image: 'x', whole: true, gpus: 1, hundredths: 0, memoryBlocks: 0, model: '', replicas: 1 };
  const preview = await raw('POST', '/api/v1/preview', { ...authorization, 'Content-Type': 'application/json' }, JSON.stringify({ form }));
  assert.equal(preview.status, 200);
  assert.equal(JSON.parse(preview.text).preview.quota, undefined, preview.text);
  // Another namespace's objects are not created either.
  await page.goto(`${base}/#/create`);
  await waitFor('the models', async () => (await page.locator('#model option').allTextContents()).join() === 'any,A100');
  await page.getByLabel('Name', { exact: true }).fill('intruder');
  await page.getByLabel('Namespace').fill('team-a');
  await page.getByLabel('Image').fill('x');
  await page.getByText('You lack the right to create pods in namespace team-a. Ask an administrator for it.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Create' }).isDisabled(), true);
  assert.deepEqual(await checkAxe(page, 'denied'), []);
  const yaml = await page.getByLabel('Manifest').inputValue();
  const applied = await raw('POST', '/api/v1/apply', { ...authorization, 'Content-Type': 'application/json' }, JSON.stringify({ yaml }));
  assert.equal(applied.status, 403);
  assert.equal((await api.request('GET', '/api/v1/namespaces/team-a/pods/intruder')).status, 404);
});

test('what tenants see of each other is a setting', async (t) => {
  await api.bind('list-nodes', 'default/tenant');
  t.after(() => api.must('DELETE', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/list-nodes-default-tenant'));
  const held = async (others) => {
    if (others) await withConsole(t, `--other-tenants=${others}`);
    const answer = await raw('GET', '/api/v1/nodes/n1', { Authorization: `Bearer ${tokens.tenant}` });
    const gpu = JSON.parse(answer.text).node.gpus[0];
    assert.equal(gpu.usedMilli, 1000);
    return gpu.held.map((one) => one.slice(1));
  };
  assert.deepEqual(await held('shares'), [[1000, 80 * kGiB]]);
  assert.deepEqual(await held('namespaces'), [[1000, 80 * kGiB, 'team-a']]);
  let page = await openAs(t, tokens.tenant);
  await page.goto(`${base}/#/node/n1`);
  await page.getByText('a pod of team-a (1 GPU, 80 GiB)').first().waitFor();
  assert.deepEqual(await held('sums'), []);
  page = await openAs(t, tokens.tenant);
  await page.getByRole('link', { name: 'n1: 2 of 8 GPUs in use, 0 unhealthy' }).waitFor();
  await page.getByLabel('Color by').selectOption('Namespace');
  await cellsAre(page, 'n1', ['striped', 'striped', ...Array(6).fill('free')]);
  await page.goto(`${base}/#/node/n1`);
  await page.getByText('other tenants (1 GPU, 80 GiB)').first().waitFor();
  assert.equal(await page.getByText('team-a').count(), 0);
  // A user who may list all pods sees them with every setting.
  page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/node/n1`);
  await page.getByRole('link', { name: 'team-a/train' }).first().waitFor();
});

// A real Prometheus with six hours of samples of n1, as its agent's metrics would be.
async function startPrometheus(t) {
  const folder = mkdtempSync(join(tmpdir(), 'tessera-console-prometheus-'));
  const now = Math.floor(Date.now() / 1000);
  const lines = [];
  const metric = (name, labels, value) => {
    if (!lines.includes(`# TYPE ${name} gauge`)) lines.push(`# TYPE ${name} gauge`);
    for (let at = now - 6 * 3600; at <= now; at += 60) lines.push(`${name}{${labels},instance="10.0.0.1:9400",job="agents"} ${value(at)} ${at}`);
  };
  // A shared GPU has a series for each container and one for the rest.
  metric('DCGM_FI_DEV_GPU_UTIL', 'UUID="GPU-n1-0",container="main"', () => 30);
  metric('DCGM_FI_DEV_GPU_UTIL', 'UUID="GPU-n1-0",container=""', () => 20);
  metric('DCGM_FI_DEV_GPU_UTIL', 'UUID="GPU-n1-1"', (at) => (at > now - 3600 ? 100 : 0));
  metric('DCGM_FI_DEV_GPU_UTIL', 'UUID="GPU-n2-0"', () => 99);
  metric('DCGM_FI_DEV_GPU_TEMP', 'UUID="GPU-n1-0"', () => 61);
  writeFileSync(join(folder, 'samples'), [...lines, '# EOF', ''].join('\n'));
  writeFileSync(join(folder, 'prometheus.yml'), 'global: {}\n');
  execFileSync(join(kPrometheus, 'promtool'), ['tsdb', 'create-blocks-from', 'openmetrics', 'samples', 'data'], { cwd: folder, stdio: 'ignore' });
  const port = await freePort();
  const child = spawn(join(kPrometheus, 'prometheus'), ['--config.file=prometheus.yml', '--storage.tsdb.path=data', `--web.listen-address=127.0.0.1:${port}`], { cwd: folder, stdio: 'ignore' });
  child.once('exit', (code) => (child.code = code));
  t.after(async () => {
    await stopConsole(child);
    rmSync(folder, { recursive: true, force: true });
  });
  await waitFor('Prometheus', () => new Promise((done, fail) => {
    request(`http://127.0.0.1:${port}/-/ready`, (response) => (response.resume(), done(response.statusCode === 200))).on('error', fail).end();
  }));
  return `http://127.0.0.1:${port}`;
}

test('a node shows the curves of hours that Prometheus has', async (t) => {
  if (!existsSync(kPrometheus)) return t.skip(`no Prometheus in ${kPrometheus}: run scripts/check once`);
  await withConsole(t, `--prometheus-url=${await startPrometheus(t)}`);
  const path = '/api/v1/nodes/n1/history?hours=6';
  // It needs the right to read from the agents.
  const refused = await raw('GET', path, { Authorization: `Bearer ${tokens.viewer}` });
  assert.equal(refused.status, 403, refused.text);
  await api.bind('read-agents', 'default/viewer', 'tessera-system');
  const answer = await waitFor('the right', async () => {
    const got = await raw('GET', path, { Authorization: `Bearer ${tokens.viewer}` });
    return got.status === 200 && JSON.parse(got.text);
  });
  assert.deepEqual(Object.keys(answer.gpus).sort(), ['GPU-n1-0', 'GPU-n1-1']);
  assert.equal(answer.step, 90);
  const { utilization, temperature } = answer.gpus['GPU-n1-0'];
  assert.equal(utilization.length, 240);
  assert.ok(utilization.slice(2).every((value) => value === 50), utilization.join());
  assert.ok(temperature.slice(2).every((value) => value === 61), temperature.join());
  for (const hours of ['0', '721', 'x', '']) {
    assert.equal((await raw('GET', `/api/v1/nodes/n1/history?hours=${hours}`, { Authorization: `Bearer ${tokens.viewer}` })).status, 400, hours);
  }
  const page = await openAs(t, tokens.viewer);
  await page.goto(`${base}/#/node/n1`);
  const section = page.getByRole('region', { name: 'Over hours' });
  await section.getByRole('row', { name: /^0 50 % 50 %/ }).waitFor();
  await section.getByRole('row', { name: /^1 1[67] % 100 %/ }).waitFor();
  await section.getByRole('row', { name: /^Node \(mean\) 3[34] % 75 %/ }).waitFor();
  assert.deepEqual(await checkAxe(page, 'history'), []);
  await picture(page, 'history');
  await section.getByLabel('Range').selectOption('1 h');
  await section.getByRole('row', { name: /^1 (100|9\d) % 100 %/ }).waitFor();
  await section.getByLabel('Curve').selectOption('Power');
  await section.getByText('Prometheus has no values of these GPUs').waitFor();
  await page.goto(`${base}/#/node/n2`);
  await section.getByRole('row', { name: /^0 99 % 99 %/ }).waitFor();
});

test('markup in texts of the cluster is shown as text', async (t) => {
  // Names and labels cannot hold markup; reasons of a node's GPUs can.
  await api.node('n4', [{ unhealthy: kEvil }], 'img-onerror');
  const page = await openAs(t, tokens.viewer);
  await page.getByRole('link', { name: /^n4: / }).waitFor();
  await page.goto(`${base}/#/node/n4`);
  await page.getByText(kEvil, { exact: false }).first().waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.locator('main img').count(), 0);
  await page.goto(`${base}/#/node/${encodeURIComponent(kEvil)}`);
  await page.getByText(`The cluster has no GPU node "${kEvil}"`, { exact: true }).waitFor();
  await page.goto(`${base}/#/workload/${encodeURIComponent(kEvil)}/${encodeURIComponent(kEvil)}`);
  await page.getByRole('alert').waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await api.must('DELETE', '/api/v1/nodes/n4');
  await page.goto(`${base}/#/`);
  await page.getByText('3 nodes', { exact: true }).waitFor();
});

test('requests of other sites are rejected', async () => {
  const login = await raw('POST', '/api/v1/login', { 'Content-Type': 'application/json' }, JSON.stringify({ token: tokens.viewer }));
  assert.equal(login.status, 200);
  const cookie = login.headers['set-cookie'][0];
  assert.match(cookie, /HttpOnly; SameSite=Strict/);
  const session = { Cookie: cookie.split(';')[0], 'Content-Type': 'application/json' };
  const { csrf } = JSON.parse((await raw('GET', '/api/v1/session', session)).text);
  const yaml = 'apiVersion: v1\nkind: Pod\nmetadata: {name: csrf, namespace: team-a}\nspec: {containers: [{name: a, image: x}]}\n';
  const apply = (headers) => raw('POST', '/api/v1/apply', { ...session, ...headers }, JSON.stringify({ yaml }));
  assert.equal((await apply({})).status, 403);
  assert.equal((await apply({ 'X-Tessera-CSRF': 'x'.repeat(64) })).status, 403);
  assert.equal((await apply({ 'X-Tessera-CSRF': csrf, Origin: 'https://evil.example' })).status, 403);
  assert.equal((await apply({ 'X-Tessera-CSRF': csrf, Origin: 'null' })).status, 403);
  assert.equal((await apply({ 'X-Tessera-CSRF': csrf, 'Sec-Fetch-Site': 'cross-site' })).status, 403);
  assert.equal((await apply({ 'X-Tessera-CSRF': csrf, 'Content-Type': 'text/plain' })).status, 400);
  assert.equal((await api.request('GET', '/api/v1/namespaces/team-a/pods/csrf')).status, 404);
  assert.equal((await apply({ 'X-Tessera-CSRF': csrf, Origin: base })).status, 200);
  const forged = await raw('POST', '/api/v1/login', { 'Content-Type': 'application/json', Origin: 'https://evil.example' }, '{}');
  assert.equal(forged.status, 403);
});

test('expired, forged and missing tokens get nothing', async (t) => {
  const [head, claims] = tokens.viewer.split('.');
  const forged = `${head}.${claims}.${Buffer.from('forged').toString('base64url')}`;
  for (const token of [api.expiring(tokens.viewer, -90), forged, 'nonsense']) {
    const answer = await raw('GET', '/api/v1/cluster', { Authorization: `Bearer ${token}` });
    assert.equal(answer.status, 401);
  }
  for (const path of ['/api/v1/cluster', '/api/v1/events', '/api/v1/quota', '/api/v1/nodes/n1', '/api/v1/session']) {
    assert.equal((await raw('GET', path)).status, 401, path);
    assert.equal((await raw('GET', path, { Cookie: `tessera_session=${'0'.repeat(64)}` })).status, 401, path);
  }
  const page = await openPage(t);
  await logIn(page, api.expiring(tokens.viewer, -90));
  await page.getByText('The cluster does not accept this token').waitFor();
  await picture(page, 'login');
});

test('an open page asks for a token when its own expires', async (t) => {
  // The API server accepts a token for a minute longer, and caches its answer for ten seconds.
  const page = await openAs(t, api.expiring(tokens.viewer, -40));
  await page.getByText('3 nodes', { exact: true }).waitFor();
  // The console asks every 30 s.
  await page.getByText('Your session has ended. Log in again.').waitFor({ timeout: 120_000 });
  assert.equal(await page.locator('.card').count(), 0);
});

test('the end of a session ends its streams', async () => {
  const login = await raw('POST', '/api/v1/login', { 'Content-Type': 'application/json' }, JSON.stringify({ token: tokens.viewer }));
  const session = { Cookie: login.headers['set-cookie'][0].split(';')[0] };
  const { csrf } = JSON.parse((await raw('GET', '/api/v1/session', session)).text);
  let text = '';
  let ended = false;
  const stream = request(`${base}/api/v1/events`, { headers: session }, (response) => {
    response.on('data', (part) => (text += part));
    response.on('end', () => (ended = true));
  });
  stream.end();
  await waitFor('the first event', () => text.includes('event: snapshot'));
  assert.equal((await raw('POST', '/api/v1/logout', { ...session, 'X-Tessera-CSRF': csrf })).status, 200);
  await waitFor('the end of the stream', () => ended);
  assert.match(text, /event: snapshot[\s\S]*event: end/);
  assert.equal((await raw('GET', '/api/v1/session', session)).status, 401);
});

test('metrics of the console are on a port of their own', async (t) => {
  const port = await freePort();
  await withConsole(t, `--metrics-address=127.0.0.1:${port}`);
  const page = await openAs(t, tokens.viewer);
  await page.getByText('3 nodes', { exact: true }).waitFor();
  assert.equal((await raw('GET', '/metrics')).status, 404);
  const status = (path) => fetch(`http://127.0.0.1:${port}${path}`);
  assert.equal((await status('/healthz')).status, 200);
  assert.equal((await status('/api/v1/cluster')).status, 404);
  const values = async () =>
    new Map((await (await status('/metrics')).text()).split('\n').map((line) => [line.split(' ')[0], Number(line.split(' ')[1])]));
  const before = await values();
  assert.equal(before.get('tessera_console_nodes'), 3);
  assert.equal(before.get('tessera_console_viewers'), 1);
  assert.equal(before.get('tessera_console_synced'), 1);
  assert.equal(before.get('tessera_console_outage_seconds'), 0);
  assert.ok(before.get('tessera_console_snapshots_total') >= 1);
  assert.ok(before.get('tessera_console_heap_bytes') > 100_000);
  assert.ok(before.get('tessera_console_responses_total{code="200"}') > 3);
  await page.close();
  await waitFor('no viewer', async () => (await values()).get('tessera_console_viewers') === 0);
});

test('a wrong method is an error in JSON', async () => {
  for (const path of ['/api/v1/login', '/api/v1/cluster']) {
    const answer = await raw('DELETE', path, { Authorization: `Bearer ${tokens.viewer}` });
    assert.equal(answer.status, 405);
    assert.equal(JSON.parse(answer.text).code, 'UNIMPLEMENTED');
    assert.match(answer.headers.allow, /POST/);
  }
});

test('files of the page have tags and a strict policy', async () => {
  const headers = { 'Accept-Encoding': 'gzip' };
  const first = await raw('GET', '/app.js', headers);
  assert.equal(first.status, 200);
  assert.match(first.headers['content-security-policy'], /default-src 'none'; script-src 'self'; style-src 'self'/);
  // All that a browser loads: no page may need more.
  let bytes = 0;
  for (const path of ['/', '/app.js', '/app.css', '/icon.svg']) bytes += (await raw('GET', path, headers)).bytes;
  assert.ok(bytes > 10_000 && bytes <= 150 << 10, `the page takes ${bytes} bytes`);
  const again = await raw('GET', '/app.js', { ...headers, 'If-None-Match': first.headers.etag });
  assert.equal(again.status, 304);
  assert.equal((await raw('GET', '/../etc/passwd', headers)).status, 404);
});

test('every page is clean for axe, in both themes and languages', async (t) => {
  const found = [];
  for (const [scheme, language] of [['light', 'English'], ['dark', '中文']]) {
    const page = await openPage(t, { colorScheme: scheme });
    await page.goto(base);
    await page.getByLabel('Token').waitFor();
    found.push(...(await checkAxe(page, `login, ${scheme}`)));
    await logIn(page, tokens.viewer);
    await page.locator('.card').first().waitFor();
    if (language === '中文') await page.getByRole('button', { name: '中文 (Chinese)' }).click();
    for (const hash of ['', 'node/n2', 'workloads', 'workload/team-a/too-big', 'create', 'quota', 'add-node', 'nothing']) {
      await page.goto(`${base}/#/${hash}`);
      await page.waitForTimeout(400);
      found.push(...(await checkAxe(page, `${hash || 'map'}, ${scheme}, ${language}`)));
      await picture(page, `${scheme}-${hash.replaceAll('/', '-') || 'map'}`);
    }
  }
  assert.deepEqual(found, []);
});

test('no page is wider than the screen, from 360 to 3840 pixels', async (t) => {
  const page = await openAs(t, tokens.viewer);
  for (const width of [360, 768, 1920, 3840]) {
    await page.setViewportSize({ width, height: 800 });
    for (const hash of ['', 'node/n2', 'workloads', 'workload/team-a/too-big', 'create', 'quota', 'add-node']) {
      await page.goto(`${base}/#/${hash}`);
      await page.waitForTimeout(150);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(over <= 0, `${hash || 'map'} at ${width}: ${over} pixels too wide`);
      await picture(page, `w${width}-${hash.replaceAll('/', '-') || 'map'}`);
    }
  }
});

test('a dashboard opens with its secret address only', async (t) => {
  const port = await freePort();
  // A shell's variables for something else, each of which would end the console.
  const env = { CONTEXT: 'x', LISTEN: 'x', TLS_CERT_FILE: 'x', TLS_PRIVATE_KEY_FILE: 'x', QUOTA_CONFIGMAP: 'x', OTHER_TENANTS: 'x', PROMETHEUS_URL: 'x', PROMETHEUS_TOKEN_FILE: 'x', OIDC_ISSUER_URL: 'x', LOG_FORMAT: 'x' };
  const child = await start('tessera', ['dashboard', '--port', String(port), '--kubeconfig', api.kubeconfig(tokens.viewer)], env);
  t.after(() => stopConsole(child));
  await waitFor('the address', () => child.out.includes('\n'));
  const url = child.out.trim();
  const own = base;
  base = `http://127.0.0.1:${port}`;
  try {
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/open\/[0-9a-f]{64}$/);
    assert.equal((await raw('GET', `/open/${'0'.repeat(64)}`)).status, 404);
    assert.equal((await raw('GET', '/api/v1/cluster')).status, 401);
    // A page that rebinds its name to this address.
    assert.equal((await raw('GET', new URL(url).pathname, { Host: 'evil.example' })).status, 403);
    const page = await openPage(t);
    await page.goto(url);
    await page.getByText('3 nodes', { exact: true }).waitFor();
    // Browsers send cookies to all ports of a host, so each dashboard names its cookie differently.
    const names = (await page.context().cookies()).map((cookie) => cookie.name);
    assert.match(names.join(), /^tessera_session_[0-9a-f]{8}$/);
  } finally {
    base = own;
  }
});

// A stopped process is what a cut connection looks like: no error, and no answer.
test('a console that is silent or gone marks the view as stale, and it recovers', async (t) => {
  const own = await startConsole();
  t.after(async () => {
    base = mainBase;
    await stopConsole(own);
  });
  const page = await openAs(t, tokens.viewer);
  await page.getByText('3 nodes', { exact: true }).waitFor();
  const note = page.getByText('no connection to the console');
  own.kill('SIGSTOP');
  await note.waitFor();
  assert.deepEqual(await checkAxe(page, 'stale'), []);
  own.kill('SIGCONT');
  await note.waitFor({ state: 'detached' });
  await api.node('n3', [{}, {}, {}, { unhealthy: 'XID 48: double-bit ECC error' }], 'serve');
  t.after(() => api.node('n3', [{}, {}, {}, {}], 'serve'));
  await page.getByRole('link', { name: 'n3: 1 of 4 GPUs in use, 1 unhealthy' }).waitFor();
  await stopConsole(own);
  await note.waitFor({ timeout: 8000 });  // sooner than after silence
});

test('a lost API server marks the view as stale, and it recovers', async (t) => {
  const page = await openAs(t, tokens.viewer);
  await page.getByText('3 nodes', { exact: true }).waitFor();
  await api.stopApi();
  await page.getByText(/Not current since/).waitFor();
  await picture(page, 'stale');
  await page.getByText('3 nodes', { exact: true }).waitFor();
  api.startApi();
  await api.ready();
  // Watches that a starting API server forbids, before it knows its roles, retry after up to 30 s.
  await page.getByText(/Not current since/).waitFor({ state: 'detached', timeout: 90_000 });
  await api.node('n5', [{}, {}]);
  await page.getByText('4 nodes', { exact: true }).waitFor();
});

test('a user has 20 streams and a limited rate of previews', async (t) => {
  const authorization = { Authorization: `Bearer ${tokens.tenant}` };
  const open = [];
  t.after(() => open.forEach((stream) => stream.destroy()));
  const stream = () => new Promise((done, fail) => {
    const sent = request(`${base}/api/v1/events`, { headers: authorization }, (response) => {
      response.on('error', () => {});
      done(response.statusCode);
    });
    sent.on('error', fail);
    sent.end();
    open.push(sent);
  });
  const statuses = [];
  for (let i = 0; i < 21; ++i) statuses.push(await stream());
  assert.deepEqual(statuses, [...Array(20).fill(200), 429]);
  const previews = Array.from({ length: 300 }, () =>
    raw('POST', '/api/v1/preview', { ...authorization, 'Content-Type': 'application/json' }, '{"yaml":"x"}'));
  const answers = (await Promise.all(previews)).map((answer) => answer.status);
  assert.deepEqual([...new Set(answers)].sort(), [200, 429]);
});

test('too many logins are rejected', async () => {
  const tries = Array.from({ length: 100 }, (_, i) =>
    raw('POST', '/api/v1/login', { 'Content-Type': 'application/json' }, JSON.stringify({ token: `guess-${i}` })));
  const answers = (await Promise.all(tries)).map((answer) => answer.status);
  assert.ok(answers.every((status) => status >= 400), String(answers));
  assert.ok(answers.includes(429), String(answers));
});
