// SPDX-License-Identifier: Apache-2.0
// Measures the web console on a large cluster: a real etcd and kube-apiserver with the Node and Pod
// objects of that cluster, tessera-console, and Debian's Chromium with its processor throttled.
//   node tests/bench/console_bench.mjs [nodes, 5000] [pods, 20000] [viewers, 200] [throttling, 4]
// Prints, next to each target:
//   page       compressed bytes of all files of the page
//   memory     of the server with the cluster alone, while all viewers read it, and after changes
//   paint      first paint, first nodes, and the whole map
//   interact   from the input until the next frame, as Chromium's Event Timing reports it, and from
//              keys in a filter until the frame with the filtered list; likewise until the frame with
//              the other color or theme
//   latency    from the API server's event until the frame that shows it
// TESSERA_BIN and TESSERA_WEB as for tests/console/console_test.mjs.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Agent, request } from 'node:http';
import { request as secureRequest } from 'node:https';
import { join, resolve } from 'node:path';
import { ApiServer, freePort, kubernetesProgram, waitFor } from '../console/apiserver.mjs';

const [kNodes, kPods, kViewers, kThrottling] = [5000, 20000, 200, 4].map((value, i) => Number(process.argv[2 + i] ?? value));
const kBin = resolve(process.env.TESSERA_BIN ?? 'build/release/bin');
const kWeb = resolve(process.env.TESSERA_WEB ?? 'build/release/web');
const kStreamsPerUser = 20; // Viewers::kMaxStreamsPerUser
const kChanges = 300;
const { chromium } = createRequire(join(kWeb, 'package.json'))('playwright-core');

const nodeName = (i) => `gpu-node-${String(i).padStart(5, '0')}`;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const percentile = (values, part) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * part))];

function report(what, value, target) {
  console.log(`${what.padEnd(52)} ${value.padStart(22)}${target ? `   target ${target}` : ''}`);
}

// Runs `make(i)` for all i, some at a time.
async function each(count, make) {
  let next = 0;
  await Promise.all(Array.from({ length: 48 }, async () => {
    while (next < count) await make(next++);
  }));
}

// Each node has eight GPUs. Four of its pods hold two whole GPUs and two shares of a third; one pod in
// a thousand waits for more GPUs than a node has.
async function fill(api) {
  const uuids = new Map();
  await each(17, (i) => api.namespace(`team-${i}`));
  await each(kNodes, async (i) => {
    const own = Array.from({ length: 8 }, () => `GPU-${randomUUID()}`);
    uuids.set(i, own);
    await api.must('POST', '/api/v1/nodes', api.nodeObject(nodeName(i), own.map((uuid) => ({ uuid })), `pool-${i % 4}`));
  });
  await each(kPods, async (i) => {
    const node = i % kNodes;
    const turn = Math.floor(i / kNodes) % 4;
    const share = turn >= 2;
    const limits = share ? { 'tencent.com/vcuda-core': '30', 'tencent.com/vcuda-memory': '20' } : { 'nvidia.com/gpu': '1' };
    const pod =
      i % 1000 === 999
        ? api.podObject(`train-${i}`, { 'nvidia.com/gpu': '9' })
        : api.podObject(`train-${i}`, limits, {
            node: nodeName(node),
            gpus: [{ gpu: uuids.get(node)[share ? 2 : turn], milli: share ? 300 : 1000, bytes: (share ? 5 : 80) * 2 ** 30 }],
          });
    await api.must('POST', `/api/v1/namespaces/team-${i % 17}/pods`, pod);
  });
  return uuids;
}

function memoryOf(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const mib = (field) => Number(new RegExp(`${field}:\\s+(\\d+) kB`).exec(status)[1]) / 1024;
  return { now: mib('VmRSS'), highest: mib('VmHWM') };
}
const mib = (value) => `${value.toFixed(1)} MiB`;

// A viewer without a browser: reads events; `complete` resolves with the whole snapshot.
function view(base, token, agent) {
  const viewer = { bytes: 0 };
  let started;
  viewer.started = new Promise((done) => (started = done));
  viewer.complete = new Promise((done, fail) => {
    const sent = request(`${base}/api/v1/events`, { agent, headers: { Authorization: `Bearer ${token}` } }, (response) => {
      if (response.statusCode !== 200) return fail(new Error(`events: status ${response.statusCode}`));
      started();
      let end = '';
      response.on('data', (part) => {
        viewer.bytes += part.length;
        end = (end + part.toString('latin1')).slice(-200);
        if (end.includes('"more":false')) done();
      });
      response.on('error', () => {});
    });
    sent.on('error', fail);
    sent.end();
    viewer.close = () => sent.destroy();
  });
  return viewer;
}

// When the API server sends the event of each change of a node, by the value of a label.
function watchNodes(api) {
  const times = new Map();
  const sent = secureRequest(
    `${api.url}/api/v1/nodes?watch=true&labelSelector=bench`,
    { ca: api.ca, headers: { Authorization: `Bearer ${api.adminToken}` } },
    (response) => {
      let text = '';
      response.on('data', (part) => {
        const now = performance.timeOrigin + performance.now();
        text += part;
        for (let end; (end = text.indexOf('\n')) >= 0; text = text.slice(end + 1)) {
          const label = JSON.parse(text.slice(0, end)).object.metadata.labels.bench;
          if (!times.has(label)) times.set(label, now);
        }
      });
    },
  );
  sent.on('error', () => {});
  sent.end();
  return { times, close: () => sent.destroy() };
}

async function measureServer(api, base, pid, tokens) {
  report('memory, the cluster alone', mib(memoryOf(pid).now));
  report('memory, highest while it was read', mib(memoryOf(pid).highest));
  const agent = new Agent({ maxSockets: Infinity });
  const began = Date.now();
  const viewers = [];
  // The first request of each user logs in; concurrent first requests would each log in.
  for (let first = 0; first < kViewers; first += kStreamsPerUser) {
    const token = tokens[first / kStreamsPerUser];
    viewers.push(view(base, token, agent));
    await viewers.at(-1).started;
    for (let i = first + 1; i < Math.min(kViewers, first + kStreamsPerUser); ++i) viewers.push(view(base, token, agent));
  }
  await Promise.all(viewers.map((viewer) => viewer.complete));
  report(`${kViewers} viewers have the snapshot after`, `${((Date.now() - began) / 1000).toFixed(1)} s`);
  report('a snapshot', mib(viewers[0].bytes / 2 ** 20));
  report('memory, highest until then', mib(memoryOf(pid).highest), '<= 60 MiB');
  await each(500, (i) =>
    api.must('PATCH', `/api/v1/nodes/${nodeName(i)}`, { spec: { unschedulable: i % 2 === 0 } }, 'application/merge-patch+json'),
  );
  await sleep(2000);
  report('memory after 500 changes', mib(memoryOf(pid).now), '<= 60 MiB');
  return () => viewers.forEach((viewer) => viewer.close());
}

async function openBrowser(base, token) {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  const context = await browser.newContext({ locale: 'en-US', viewport: { width: 1920, height: 1080 } });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  await page.goto(base);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.locator('.summary[aria-busy=false]').waitFor();
  const debug = await context.newCDPSession(page);
  await debug.send('Emulation.setCPUThrottlingRate', { rate: kThrottling });
  return { browser, page };
}

// A reload as a person sees it. Marks are set inside the page, so that the test's own calls cost nothing.
// Element Timing says when the first card was on the screen: a callback of the page would wait for the
// parts of the cluster that have arrived since.
async function measurePaint(page) {
  await page.addInitScript(() => {
    window.marks = {};
    const mark = (name, time = performance.now()) => (window.marks[name] ??= time);
    new PerformanceObserver((list) => mark('nodes', list.getEntries()[0].renderTime)).observe({ type: 'element' });
    new MutationObserver(() => {
      if (!document.querySelector('[elementtiming]')) document.querySelector('.card')?.setAttribute('elementtiming', 'card');
      if (document.querySelector('.summary[aria-busy=false]')) requestAnimationFrame(() => setTimeout(() => mark('whole')));
    }).observe(document, { childList: true, subtree: true, attributes: true });
  });
  const seen = { paint: [], nodes: [], whole: [] };
  for (let i = 0; i < 5; ++i) {
    await page.reload();
    await page.waitForFunction(() => window.marks.whole && window.marks.nodes);
    const marks = await page.evaluate(() => ({
      ...window.marks,
      paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
    }));
    for (const name of Object.keys(seen)) seen[name].push(marks[name]);
  }
  const ms = (name) => `${Math.round(percentile(seen[name], 0.5))} ms (to ${Math.round(Math.max(...seen[name]))})`;
  report('first paint, median of 5', ms('paint'), '< 1000 ms');
  report('first nodes on the map', ms('nodes'), '< 1000 ms');
  report('the whole cluster', ms('whole'));
}

// The longest time from an input to the next frame, for each kind of input.
async function measureInteraction(page) {
  await page.evaluate(() => {
    window.inputs = [];
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) {
        if (entry.interactionId) window.inputs.push({ name: entry.name, duration: entry.duration });
      }
    }).observe({ type: 'event', durationThreshold: 16 });
    window.results = [];
    let pressed = 0;
    for (const type of ['keydown', 'click']) addEventListener(type, (event) => (pressed = event.timeStamp), true);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => window.results.push(performance.now() - data);
    new MutationObserver((changes) => {
      const inList = ({ target }) => target === document.documentElement || target.parentElement?.closest('.map, tbody');
      if (!pressed || !changes.some(inList)) return;
      const since = pressed;
      pressed = 0;
      requestAnimationFrame(() => port2.postMessage(since)); // the message comes after the frame
    }).observe(document.documentElement, {
      childList: true, subtree: true, characterData: true, attributeFilter: ['d', 'data-theme'],
    });
  });
  const reportResult = async (what, target) => {
    await sleep(600);
    const times = await page.evaluate(() => window.results.splice(0));
    report(`${what}, longest`, `${Math.round(Math.max(0, ...times))} ms`, target);
  };
  const reportInput = async (what) => {
    await sleep(600);
    const inputs = await page.evaluate(() => window.inputs.splice(0));
    const longest = Math.max(16, ...inputs.map((input) => input.duration));
    report(`interaction: ${what}`, `${Math.round(longest)} ms`, '< 100 ms');
  };
  await page.getByLabel('Filter').click();
  await page.keyboard.type('node-00', { delay: 150 });
  await reportInput('type into the filter of the map');
  for (let i = 0; i < 7; ++i) await page.keyboard.press('Backspace', { delay: 100 });
  await reportInput('remove the filter');
  // All node names contain "node-00", and few contain "427".
  await page.evaluate(() => window.results.splice(0));
  await page.keyboard.type('427', { delay: 300 });
  await reportResult('the filtered list: map', '< 100 ms');
  await page.getByLabel('Filter').fill('');
  await sleep(600);
  await page.evaluate(() => [window.inputs.splice(0), window.results.splice(0)]);
  for (const key of ['m', 'n', 'a']) { // memory, namespace, allocation
    await page.getByLabel('Color by').focus();
    await page.keyboard.press(key);
    await sleep(1100); // a list takes keys that follow sooner for the next letters of a name
  }
  await reportInput('change the color');
  await reportResult('the map in another color');
  await page.locator('.card').first().focus();
  for (let i = 0; i < 12; ++i) await page.keyboard.press('ArrowDown', { delay: 60 });
  await reportInput('move through the map by keys');
  await page.evaluate(() => window.results.splice(0));
  await page.getByRole('button', { name: 'Dark' }).click();
  await page.getByRole('button', { name: 'Light' }).click();
  await reportInput('change the theme');
  await reportResult('the page in another theme');
  await page.locator('.card').nth(3).click();
  await page.locator('.topology svg').waitFor();
  await reportInput('open a node');
  await page.getByRole('link', { name: 'Workloads', exact: true }).click();
  await reportInput('open the workloads');
  await page.getByLabel('Filter').click();
  await page.evaluate(() => window.results.splice(0));
  await page.keyboard.type('team-3/', { delay: 150 });
  await reportResult('the filtered list: workloads', '< 100 ms');
  await reportInput('type into the filter of the workloads');
  await page.getByRole('link', { name: 'Map', exact: true }).click();
  await reportInput('go back to the map');
}

// Changes a node that is on the screen, and waits for the frame that shows it.
async function measureLatency(api, page, uuids) {
  const name = nodeName(7);
  const watch = watchNodes(api);
  await page.getByLabel('Filter').fill(name);
  await page.locator(`[data-node="${name}"]`).waitFor();
  await page.evaluate((node) => {
    window.shown = new Map();
    const card = () => document.querySelector(`[data-node="${node}"]`);
    new MutationObserver(() => {
      const problem = /change-\d+/.exec(card()?.getAttribute('aria-label') ?? '')?.[0];
      if (!problem || window.shown.has(problem)) return;
      window.shown.set(problem, 0);
      requestAnimationFrame(() => setTimeout(() => window.shown.set(problem, performance.timeOrigin + performance.now())));
    }).observe(document, { childList: true, subtree: true, attributes: true });
  }, name);
  const devices = JSON.parse(api.nodeObject(name, uuids.get(7).map((uuid) => ({ uuid }))).metadata.annotations['tessera.dev/devices']);
  const fromEvent = [];
  const fromRequest = [];
  for (let i = 0; i < kChanges; ++i) {
    const label = `change-${i}`;
    const annotations = { 'tessera.dev/devices': JSON.stringify({ ...devices, problem: label }) };
    const sent = performance.timeOrigin + performance.now();
    await api.must('PATCH', `/api/v1/nodes/${name}`, { metadata: { labels: { bench: label }, annotations } }, 'application/merge-patch+json');
    const shown = await waitFor(`the frame of ${label}`, () => page.evaluate((key) => window.shown.get(key), label), 20);
    await waitFor('the watch', () => watch.times.has(label), 5);
    fromEvent.push(shown - watch.times.get(label));
    fromRequest.push(shown - sent);
    await sleep(20 + (i % 7) * 17);
  }
  watch.close();
  const text = (values) => `${Math.round(percentile(values, 0.5))} / ${Math.round(percentile(values, 0.99))} / ${Math.round(Math.max(...values))} ms`;
  report('from the API event to the pixel, p50 / p99 / max', text(fromEvent), 'p99 <= 200 ms');
  report('from the request that causes it', text(fromRequest));
}

async function pageBytes(base) {
  let bytes = 0;
  for (const path of ['/', '/app.js', '/app.css', '/icon.svg']) {
    bytes += await new Promise((done, fail) => {
      request(`${base}${path}`, { headers: { 'Accept-Encoding': 'gzip' } }, (response) => {
        let size = 0;
        response.on('data', (part) => (size += part.length));
        response.on('end', () => done(size));
      }).on('error', fail).end();
    });
  }
  return bytes;
}

async function main() {
  if (!kubernetesProgram()) throw new Error('Kubernetes is not built: run scripts/quickstart, or testcluster up, once');
  const api = await ApiServer.start();
  let server, browser, closeViewers;
  try {
    const began = Date.now();
    const uuids = await fill(api);
    console.log(`${kNodes} nodes, ${kPods} pods, written in ${Math.round((Date.now() - began) / 1000)} s; throttled ${kThrottling} times`);
    await api.role('bench-view', [{ apiGroups: [''], resources: ['nodes', 'pods', 'configmaps'], verbs: ['get', 'list', 'watch'] }]);
    const tokens = [];
    for (let i = 0; i <= Math.ceil(kViewers / kStreamsPerUser); ++i) {
      tokens.push(await api.account('default', `person-${i}`));
      await api.bind('bench-view', `default/person-${i}`);
    }
    const port = await freePort();
    const base = `http://127.0.0.1:${port}`;
    server = spawn(join(kBin, 'tessera-console'), ['--listen', `127.0.0.1:${port}`, '--kubeconfig', api.kubeconfig(tokens[0])],
                   { stdio: ['ignore', 'ignore', 'inherit'] });
    const token = tokens[tokens.length - 1];
    await waitFor('the console', async () => {
      const viewer = view(base, token);
      await Promise.race([viewer.complete, sleep(20_000).then(() => Promise.reject(new Error('no snapshot')))]);
      viewer.close();
      return true;
    }, 120);
    report('the page', `${await pageBytes(base)} bytes`, `<= ${150 << 10}`);
    closeViewers = await measureServer(api, base, server.pid, tokens);
    const opened = await openBrowser(base, token);
    browser = opened.browser;
    await measurePaint(opened.page);
    await measureInteraction(opened.page);
    await measureLatency(api, opened.page, uuids);
    report('memory at the end', mib(memoryOf(server.pid).now), '<= 60 MiB');
  } finally {
    closeViewers?.();
    await browser?.close();
    server?.kill('SIGTERM');
    await api.stop();
  }
}

await main();
