// SPDX-License-Identifier: Apache-2.0
// The pages of the console look as their pictures in docs/images, in both themes.
//   node --test tests/console/pictures_test.mjs
// TESSERA_BIN, TESSERA_WEB as for console_test.mjs. TESSERA_UPDATE_PICTURES=1 writes the pictures anew: look at
// each before you commit it.
//
// Pictures are compared after both have been reduced to an eighth. What fonts and versions of Chromium
// change is then below the threshold; a missing part of a page, or a wrong color, is not.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ApiServer, freePort, kubernetesProgram, waitFor } from './apiserver.mjs';

const kChromium = '/usr/bin/chromium';
const kBin = resolve(process.env.TESSERA_BIN ?? 'build/release/bin');
const kWeb = resolve(process.env.TESSERA_WEB ?? 'build/release/web');
const kImages = resolve(dirname(fileURLToPath(import.meta.url)), '../../docs/images');
const kHeights = { node: 1700, explain: 1100 }; // in pixels; other pages: 800
const kMaxDifferent = 0.02; // of the cells
const GiB = 2 ** 30;

if (!kubernetesProgram() || !existsSync(kChromium) || !existsSync(join(kWeb, 'node_modules/playwright-core'))) {
  console.log(`SKIPPED: needs Kubernetes (scripts/quickstart builds it), ${kChromium}, and the page built with npm`);
  process.exit(77);
}
const { chromium } = createRequire(join(kWeb, 'package.json'))('playwright-core');

const kGroups = [
  { prefix: 'a100', count: 14, gpus: 8, pool: 'train', model: 'NVIDIA A100-SXM4-80GB', bytes: 80 * GiB },
  { prefix: 'l40s', count: 10, gpus: 4, pool: 'serve', model: 'NVIDIA L40S', bytes: 48 * GiB },
  { prefix: 't4', count: 8, gpus: 2, pool: 'dev', model: 'Tesla T4', bytes: 16 * GiB },
];
const kTeams = ['research', 'vision', 'speech', 'search'];
let api, server, browser, base, token;

// Always the same numbers, so that pictures can be compared.
function randomNumbers(seed) {
  return () => (seed = (seed * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
}

async function fillGroup({ prefix, count, gpus, pool, model, bytes }, random) {
  for (let n = 1; n <= count; ++n) {
    const name = `${prefix}-${String(n).padStart(2, '0')}`;
    const bad = name === 'a100-03' ? 5 : name === 'l40s-07' ? 1 : -1;
    await api.node(name, Array.from({ length: gpus }, (_, i) => ({ model, bytes, ...(i === bad && { unhealthy: 'XID 79: GPU has fallen off the bus' }) })), pool);
    for (let i = 0; i < gpus; ++i) {
      if (i === bad || random() < 0.25) continue;
      const team = kTeams[Math.floor(random() * kTeams.length)];
      const whole = pool === 'train' || random() < 0.3;
      const shares = whole ? [1000] : random() < 0.5 ? [300, 500] : [500];
      for (const [j, milli] of shares.entries()) {
        const held = whole ? bytes : (milli * bytes) / 1000 - ((milli * bytes) / 1000) % (GiB / 4);
        const limits = whole ? { 'nvidia.com/gpu': '1' } : { 'tencent.com/vcuda-core': String(milli / 10), 'tencent.com/vcuda-memory': String(held / (GiB / 4)) };
        await api.pod(team, `${pool}-${n}-${i}-${j}`, limits, { node: name, gpus: [{ gpu: `GPU-${name}-${i}`, milli, bytes: held }] });
      }
    }
  }
}

async function fillCluster() {
  for (const team of kTeams) await api.namespace(team);
  const random = randomNumbers(7);
  for (const group of kGroups) await fillGroup(group, random);
  await api.pod('research', 'pretrain-xl', { 'nvidia.com/gpu': '8' });
  await api.pod('speech', 'align', { 'nvidia.com/gpu': '4' });
  await api.must('POST', '/api/v1/namespaces/kube-system/configmaps', {
    apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'gpuquota' },
    data: { gpu_quota: JSON.stringify({ research: { quota: { A100: 64 } }, vision: { quota: { A100: 32, L40S: 8 } }, speech: { quota: { A100: 24 } } }) },
  });
}

before(async () => {
  api = await ApiServer.start();
  await fillCluster();
  await api.role('all', [{ apiGroups: ['*'], resources: ['*'], verbs: ['*'] }]);
  token = await api.account('default', 'ann');
  await api.bind('all', 'default/ann');
  const port = await freePort();
  base = `http://127.0.0.1:${port}`;
  server = spawn(join(kBin, 'tessera-console'), ['--listen', `127.0.0.1:${port}`, '--kubeconfig', api.kubeconfig(token)], { stdio: 'ignore' });
  await waitFor('the console', async () => (await fetch(`${base}/healthz`)).ok);
  browser = await chromium.launch({ executablePath: kChromium, args: ['--no-sandbox', '--disable-gpu', '--force-color-profile=srgb'] });
}, { timeout: 240_000 });

after(async () => {
  await browser?.close();
  if (server) {
    const gone = new Promise((done) => server.once('exit', done));
    server.kill('SIGTERM');
    await gone;
  }
  await api?.stop();
}, { timeout: 60_000 });

// What an agent would answer for node a100-03.
function usageOf(node) {
  const gpus = {};
  for (let i = 0; i < 8; ++i) gpus[`GPU-${node}-${i}`] = { utilization: [97, 99, 12, 88, 0, 0, 76, 93][i], temperature: 40 + i * 3, power: 90 + i * 35 };
  return { gpus, containers: [], complete: true };
}

const kPages = {
  map: async (page) => {
    await page.getByLabel('Color by').selectOption('Namespace');
    await page.getByText('speech', { exact: true }).first().waitFor();
  },
  node: async (page) => {
    await page.route('**/usage', (route) => route.fulfill({ json: usageOf('a100-03') }));
    await page.goto(`${base}/#/node/a100-03`);
    await page.locator('.topology svg').waitFor();
    await page.getByRole('row', { name: /97 % 40 °C/ }).waitFor();
  },
  explain: async (page) => {
    await page.goto(`${base}/#/workload/research/pretrain-xl`);
    await page.getByRole('heading', { name: 'What would make room' }).waitFor();
    await page.locator('.near li').first().waitFor();
  },
  create: async (page) => {
    await page.goto(`${base}/#/create`);
    await page.getByLabel('Name', { exact: true }).fill('nginx');
    await page.getByLabel('Namespace').fill('vision');
    await page.getByLabel('Image').fill('nginx');
    await page.getByText(/Fits on \d+ of 32 nodes/).waitFor();
    await page.waitForFunction(() => !document.querySelector('button[type=submit]').disabled);
    await page.getByLabel('Image').blur();
  },
  quota: async (page) => {
    await page.goto(`${base}/#/quota`);
    await page.getByRole('row', { name: /^research A100/ }).waitFor();
  },
};

// The part of the cells in which two pictures differ.
async function difference(page, pictures) {
  return page.evaluate(async (both) => {
    const [a, b] = await Promise.all(both.map(async (text) => {
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const bitmap = await createImageBitmap(new Blob([bytes], { type: 'image/webp' }));
      const canvas = new OffscreenCanvas(bitmap.width / 8, bitmap.height / 8);
      const context = canvas.getContext('2d');
      context.imageSmoothingQuality = 'high';
      context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      return context.getImageData(0, 0, canvas.width, canvas.height);
    }));
    if (a.width !== b.width || a.height !== b.height) return 1;
    let different = 0;
    for (let i = 0; i < a.data.length; i += 4) {
      if ([0, 1, 2].some((c) => Math.abs(a.data[i + c] - b.data[i + c]) > 40)) different++;
    }
    return different / (a.data.length / 4);
  }, pictures);
}

for (const theme of ['light', 'dark']) {
  for (const [name, prepare] of Object.entries(kPages)) {
    test(`${name} looks as its ${theme} picture`, async (t) => {
      const context = await browser.newContext({ locale: 'en-US', colorScheme: theme, viewport: { width: 1280, height: kHeights[name] ?? 800 } });
      t.after(() => context.close());
      const page = await context.newPage();
      page.setDefaultTimeout(60_000);
      await page.goto(base);
      await page.getByLabel('Token').fill(token);
      await page.getByRole('button', { name: 'Log in' }).click();
      await page.locator('.card').first().waitFor();
      await prepare(page);
      // Its Chinese letters depend on the fonts of the machine.
      await page.getByRole('button', { name: '中文' }).evaluate((button) => (button.style.display = 'none'));
      await page.waitForTimeout(300);
      const debug = await context.newCDPSession(page);
      const { data } = await debug.send('Page.captureScreenshot', { format: 'webp', quality: 60 });
      const file = join(kImages, `console-${name}-${theme}.webp`);
      if (process.env.TESSERA_UPDATE_PICTURES) {
        mkdirSync(kImages, { recursive: true });
        writeFileSync(file, Buffer.from(data, 'base64'));
      }
      if (process.env.TESSERA_SCREENSHOTS) writeFileSync(join(process.env.TESSERA_SCREENSHOTS, `${name}-${theme}.webp`), Buffer.from(data, 'base64'));
      assert.ok(existsSync(file), `${file} is missing: run with TESSERA_UPDATE_PICTURES=1`);
      const blank = await context.newPage();
      const part = await difference(blank, [data, readFileSync(file).toString('base64')]);
      assert.ok(part <= kMaxDifferent, `${(part * 100).toFixed(1)} % of the page differ from ${file}: ` +
        'if the change is meant, run with TESSERA_UPDATE_PICTURES=1');
    });
  }
}
