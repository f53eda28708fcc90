// SPDX-License-Identifier: Apache-2.0
// What two users do with the console of a real cluster, in Debian's Chromium. Run by the end-to-end
// test TestPeopleUseTheInstalledConsole (tests/e2e/nodes), which has installed the console and checks
// afterwards with kubectl what has become of their work.
//   CONSOLE      address of the console
//   KEEPER       token of a user who may do everything
//   TENANT       token of a user with rights in namespace "tenant" alone
//   IMAGE        image of the pods
//   TESSERA_WEB  folder with the packages of web/package.json
// Prints a line for each step. Exits with 77 if the browser is missing.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const { CONSOLE, KEEPER, TENANT, IMAGE, TESSERA_WEB, TESSERA_SCREENSHOTS } = process.env;
const kChromium = '/usr/bin/chromium';
if (!existsSync(kChromium) || !existsSync(join(TESSERA_WEB, 'node_modules/playwright-core'))) {
  console.log(`SKIPPED: ${kChromium} is missing, or the page was built without npm`);
  process.exit(77);
}
const { chromium } = createRequire(join(TESSERA_WEB, 'package.json'))('playwright-core');
const browser = await chromium.launch({ executablePath: kChromium, args: ['--no-sandbox', '--disable-gpu'] });
const pages = [];

async function openAs(token) {
  const context = await browser.newContext({ locale: 'en-US', viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  pages.push(page);
  page.setDefaultTimeout(120_000);
  await page.goto(CONSOLE);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('link', { name: 'Workloads', exact: true }).waitFor();
  return page;
}

async function step(what, act) {
  await act();
  console.log(`done: ${what}`);
}

async function chooseModel(page, part) {
  await page.locator('#model option', { hasText: part }).waitFor({ state: 'attached' });
  const models = await page.locator('#model option').allTextContents();
  await page.getByLabel('Model').selectOption({ label: models.find((text) => text.includes(part)) });
}

// Fills in the form, changes its manifest by `more`, and creates the workload.
async function create(page, { name, namespace, amount, more }) {
  await page.goto(`${CONSOLE}/#/create`);
  await page.getByLabel('Name', { exact: true }).fill(name);
  await page.getByLabel('Namespace').fill(namespace);
  await page.getByLabel('Image').fill(IMAGE);
  await amount();
  await page.getByText(/Fits on 1 of 3 nodes/).waitFor();
  await page.waitForFunction((text) => document.querySelector('#yaml').value.includes(text), `name: ${name}`);
  const yaml = await page.getByLabel('Manifest').inputValue();
  await page.getByLabel('Manifest').fill(more(yaml));
  await page.waitForFunction(() => !document.querySelector('button[type=submit]').disabled);
  await page.getByRole('button', { name: 'Create' }).click();
}

// The manifest with a further line above the one that begins with `key`, at the same depth.
function withLine(yaml, key, line) {
  const changed = yaml.replace(new RegExp(`^( *)(- )?(?=${key})`, 'm'), (found, indent, dash) =>
    `${found}${line}\n${indent}${dash ? '  ' : ''}`);
  assert.notEqual(changed, yaml, `no ${key} in ${yaml}`);
  return changed;
}

try {
  const keeper = await openAs(KEEPER);
  await step('a user sees the nodes', async () => {
    await keeper.getByText('3 nodes', { exact: true }).waitFor();
  });
  await step('a user creates a pod with 0.3 of a GPU and 20 x 256 MiB', async () => {
    await create(keeper, {
      name: 'nginx', namespace: 'people',
      amount: async () => {
        await keeper.getByLabel('Share of compute').fill('0.3');
        await keeper.getByLabel('Memory', { exact: true }).fill('20');
        await chooseModel(keeper, 'T4');
      },
      more: (yaml) => withLine(yaml, 'image:', 'args: ["--hold", "3600"]'),
    });
    await keeper.getByText('Created people/nginx.').waitFor();
  });
  await step('the user sees it run, with what it uses', async () => {
    await keeper.goto(`${CONSOLE}/#/node/n2`);
    await keeper.getByRole('link', { name: 'people/nginx' }).first().waitFor();
    const containers = keeper.getByRole('region', { name: 'Containers' });
    await containers.getByRole('row', { name: /people\/nginx nginx|people\/nginx main/ }).waitFor();
    await containers.getByText(/\/5 GiB/).waitFor();
  });
  await step('a user creates a pod with one whole GPU', async () => {
    await create(keeper, {
      name: 'gpu-operator-test', namespace: 'people',
      amount: async () => {
        await keeper.getByLabel('Whole GPUs').check();
        await keeper.getByLabel('Number of GPUs').fill('1');
        await chooseModel(keeper, 'T4');
      },
      more: (yaml) => withLine(yaml, 'containers:', 'restartPolicy: OnFailure'),
    });
    await keeper.getByText('Created people/gpu-operator-test.').waitFor();
    await keeper.getByRole('link', { name: 'Workloads', exact: true }).click();
    await keeper.getByRole('row', { name: /gpu-operator-test/ }).waitFor({ state: 'detached' }); // it has ended
  });
  await step('a user drains the node of the pod', async () => {
    await keeper.goto(`${CONSOLE}/#/node/n2`);
    await keeper.getByRole('button', { name: 'Drain, mode…' }).click();
    await keeper.getByRole('button', { name: 'Preview the drain' }).click();
    await keeper.getByRole('row', { name: /people\/nginx – .* stays no controller/ }).waitFor();
    await keeper.getByLabel(/Also pods without a controller/).check();
    await keeper.getByRole('button', { name: 'Preview the drain' }).click();
    await keeper.getByRole('row', { name: /people\/nginx .* would go/ }).waitFor();
    await keeper.getByRole('button', { name: 'Cordon and evict' }).click();
    await keeper.getByRole('row', { name: /people\/nginx .* evicted/ }).waitFor();
    await keeper.getByRole('link', { name: '← Map' }).click();
    await keeper.getByRole('link', { name: /^n2: .*cordoned/ }).waitFor();
  });
  await step('a user chooses whole GPUs only for another node', async () => {
    await keeper.goto(`${CONSOLE}/#/node/n3`);
    await keeper.getByRole('button', { name: 'Drain, mode…' }).click();
    await keeper.getByLabel(/Whole GPUs only pool training/).check();
    await keeper.getByRole('button', { name: 'Change the mode' }).click();
    await keeper.getByLabel(/Whole GPUs only pool training, now/).waitFor();
  });
  await step('a tenant sees and does only what the own rights allow', async () => {
    const tenant = await openAs(TENANT);
    await tenant.getByText('You may not list nodes').waitFor();
    await tenant.getByRole('link', { name: 'Workloads', exact: true }).click();
    await tenant.getByText('No workload that you may see requests GPUs').waitFor();
    assert.equal(await tenant.getByText('nginx').count(), 0);
    await tenant.goto(`${CONSOLE}/#/create`);
    await tenant.getByLabel('Name', { exact: true }).fill('intruder');
    await tenant.getByLabel('Namespace').fill('people');
    await tenant.getByLabel('Image').fill(IMAGE);
    await tenant.getByText('You lack the right to create pods in namespace people.').waitFor();
    await tenant.getByLabel('Namespace').fill('tenant');
    await tenant.getByRole('button', { name: 'Create' }).click();
    await tenant.getByText('Created tenant/intruder.').waitFor();
  });
} catch (error) {
  for (const [i, page] of pages.entries()) {
    if (TESSERA_SCREENSHOTS) await page.screenshot({ path: join(TESSERA_SCREENSHOTS, `page-${i}.png`) });
    console.log(`page ${i}: ${page.url()}\n${await page.locator('main').innerText().catch(() => '')}`);
  }
  throw error;
} finally {
  await browser.close();
}
