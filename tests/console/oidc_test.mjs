// SPDX-License-Identifier: Apache-2.0
// Login with OpenID Connect: a small issuer in this test, the console, Debian's Chromium, and a real
// kube-apiserver that accepts the issuer's ID tokens.
//   node --test tests/console/oidc_test.mjs
// TESSERA_BIN: folder of the programs; TESSERA_WEB: folder with the packages of web/package.json.
import { after, before, beforeEach, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash, createSign, generateKeyPairSync, randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:https';
import { join, resolve } from 'node:path';
import { ApiServer, freePort, kubernetesProgram, waitFor } from './apiserver.mjs';

const kChromium = '/usr/bin/chromium';
const kBin = resolve(process.env.TESSERA_BIN ?? 'build/release/bin');
const kWeb = resolve(process.env.TESSERA_WEB ?? 'build/release/web');
const kClient = 'tessera';
const kSecret = 'secret & of "the" console';

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

const sha256 = (text) => createHash('sha256').update(text).digest('base64url');

// An OpenID Connect issuer with one user, who is always logged in. Its host is "localhost", so that
// the console on 127.0.0.1 is another site for the browser.
class Issuer {
  constructor(dir, port) {
    const openssl = (...args) => execFileSync('openssl', args, { cwd: dir, stdio: 'pipe' });
    openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'issuer.key', '-out', 'issuer.crt',
            '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost');
    this.certificate = join(dir, 'issuer.crt');
    this.url = `https://localhost:${port}`;
    this.keys = generateKeyPairSync('rsa', { modulusLength: 2048 });
    this.otherKeys = generateKeyPairSync('rsa', { modulusLength: 2048 });
    this.server = createServer(
      { key: readFileSync(join(dir, 'issuer.key')), cert: readFileSync(this.certificate) },
      (received, response) => {
        let body = '';
        received.on('data', (part) => (body += part));
        received.on('end', () => this.answer(received, new URLSearchParams(body), response));
      },
    );
    this.started = new Promise((done) => this.server.listen(port, '127.0.0.1', done));
    this.reset();
  }

  // How the next logins deviate: `claims`; `signer`: the keys of the signature; `refusal`: the error of
  // /auth; `seconds`: how long ID tokens are valid; `refreshes`: whether to give refresh tokens.
  reset() {
    this.claims = {};
    this.signer = this.keys;
    this.refusal = null;
    this.seconds = 300;
    this.refreshes = false;
    this.refreshTokens = new Set(); // each is valid once
    this.refreshed = 0;
    this.codes = new Map();
    this.issued = []; // codes and tokens
    this.targets = [];
  }

  answer(received, form, response) {
    this.targets.push(received.url);
    const url = new URL(received.url, this.url);
    const json = (status, value) => {
      response.writeHead(status, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify(value));
    };
    if (url.pathname === '/.well-known/openid-configuration') {
      return json(200, {
        issuer: this.url, authorization_endpoint: `${this.url}/auth`, token_endpoint: `${this.url}/token`,
        jwks_uri: `${this.url}/keys`, response_types_supported: ['code'], subject_types_supported: ['public'],
        id_token_signing_alg_values_supported: ['RS256'],
      });
    }
    if (url.pathname === '/keys') {
      const key = this.keys.publicKey.export({ format: 'jwk' });
      return json(200, { keys: [{ ...key, kid: 'k', use: 'sig', alg: 'RS256' }] });
    }
    if (url.pathname === '/auth') return this.authorize(url.searchParams, response);
    if (url.pathname === '/token') return this.exchange(received, form, json);
    json(404, {});
  }

  authorize(query, response) {
    assert.equal(query.get('response_type'), 'code');
    assert.equal(query.get('client_id'), kClient);
    assert.equal(query.get('code_challenge_method'), 'S256');
    assert.equal(query.get('scope'), 'openid email');
    const back = new URL(query.get('redirect_uri'));
    back.searchParams.set('state', query.get('state'));
    if (this.refusal) {
      back.searchParams.set('error', 'access_denied');
      back.searchParams.set('error_description', this.refusal);
    } else {
      const code = `code-${randomUUID()}`;
      this.codes.set(code, Object.fromEntries(query));
      this.issued.push(code);
      back.searchParams.set('code', code);
    }
    response.writeHead(200, { 'Content-Type': 'text/html' });
    response.end(`<a href="${back.href.replaceAll('&', '&amp;')}">Continue as Alice</a>`);
  }

  exchange(received, form, json) {
    const basic = `${encodeURIComponent(kClient)}:${encodeURIComponent(kSecret)}`;
    if (received.headers.authorization !== `Basic ${Buffer.from(basic).toString('base64')}`) {
      return json(401, { error: 'invalid_client' });
    }
    if (form.get('grant_type') === 'refresh_token') {
      if (!this.refreshTokens.delete(form.get('refresh_token'))) return json(400, { error: 'invalid_grant' });
      this.refreshed += 1;
      return json(200, this.tokens(undefined));
    }
    const login = this.codes.get(form.get('code'));
    this.codes.delete(form.get('code'));
    const proven = login && sha256(form.get('code_verifier')) === login.code_challenge;
    if (!proven || form.get('redirect_uri') !== login.redirect_uri) return json(400, { error: 'invalid_grant' });
    json(200, this.tokens(login.nonce));
  }

  tokens(nonce) {
    const tokens = { access_token: 'unused', token_type: 'Bearer', id_token: this.idToken(nonce) };
    if (!this.refreshes) return tokens;
    const refresh = `refresh-${randomUUID()}`;
    this.refreshTokens.add(refresh);
    this.issued.push(refresh);
    return { ...tokens, refresh_token: refresh };
  }

  idToken(nonce) {
    const now = Math.floor(Date.now() / 1000);
    const claims = {
      iss: this.url, aud: kClient, sub: '1', email: 'alice@example.com', nonce, iat: now, exp: now + this.seconds,
      ...this.claims,
    };
    const text = [{ alg: 'RS256', kid: 'k' }, claims]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    const token = `${text}.${createSign('RSA-SHA256').update(text).sign(this.signer.privateKey).toString('base64url')}`;
    this.issued.push(token);
    return token;
  }
}

let api, issuer, browser, consoleProcess, base;

before(async () => {
  api = await ApiServer.start(async (server) => {
    issuer = new Issuer(server.dir, await freePort());
    await issuer.started;
    return [`--oidc-issuer-url=${issuer.url}`, `--oidc-client-id=${kClient}`, `--oidc-ca-file=${issuer.certificate}`,
            '--oidc-username-claim=email'];
  });
  // The API server reads the issuer's keys after it has started.
  await waitFor('the issuer at the API server', async () =>
    (await api.request('GET', '/api', undefined, issuer.idToken('x'))).status !== 401);
  await api.node('n1', [{}, {}]);
  await api.role('list-nodes', [{ apiGroups: [''], resources: ['nodes'], verbs: ['list'] }]);
  await api.must('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
    apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRoleBinding', metadata: { name: 'alice' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'list-nodes' },
    subjects: [{ kind: 'User', name: 'alice@example.com', apiGroup: 'rbac.authorization.k8s.io' }],
  });
  const secretFile = join(api.dir, 'client-secret');
  writeFileSync(secretFile, `${kSecret}\n`);
  const port = await freePort();
  base = `http://127.0.0.1:${port}`;
  consoleProcess = spawn(join(kBin, 'tessera-console'), [
    '--listen', `127.0.0.1:${port}`, '--kubeconfig', api.kubeconfig(api.adminToken),
    `--oidc-issuer-url=${issuer.url}`, `--oidc-client-id=${kClient}`, `--oidc-client-secret-file=${secretFile}`,
    `--oidc-ca-file=${issuer.certificate}`, '--oidc-scopes=openid email', `--oidc-redirect-url=${base}/oidc/callback`,
  ], { stdio: ['ignore', 'pipe', 'pipe'] });
  consoleProcess.log = '';
  for (const stream of [consoleProcess.stdout, consoleProcess.stderr]) stream.on('data', (text) => (consoleProcess.log += text));
  const admin = { Authorization: `Bearer ${api.adminToken}` };
  await waitFor('the console', async () => (await raw('/api/v1/cluster', admin)).status === 200);
  browser = await chromium.launch({ executablePath: kChromium, args: ['--no-sandbox', '--disable-gpu'] });
}, { timeout: 240_000 });

after(async () => {
  await browser?.close();
  if (consoleProcess && consoleProcess.exitCode === null) {
    const gone = new Promise((done) => consoleProcess.once('exit', done));
    consoleProcess.kill('SIGTERM');
    await gone;
  }
  issuer?.server.closeAllConnections();
  issuer?.server.close();
  await api?.stop();
}, { timeout: 60_000 });

beforeEach(() => issuer.reset());

// A request without a browser.
function raw(path, headers = {}) {
  return new Promise((done, fail) => {
    const sent = request(`${base}${path}`, { headers }, (response) => {
      let text = '';
      response.on('data', (part) => (text += part));
      response.on('end', () => done({ status: response.statusCode, headers: response.headers, text }));
    });
    sent.on('error', fail);
    sent.end();
  });
}

const cookieOf = (response) => response.headers['set-cookie'].map((cookie) => cookie.split(';')[0]).join('; ');

// The issuer's part of a login without a browser: the path of the callback.
function callbackFor(begun) {
  const page = { writeHead: () => {}, end: (text) => (page.text = text) };
  issuer.authorize(new URL(begun.headers.location).searchParams, page);
  return page.text.match(/href="([^"]*)"/)[1].replaceAll('&amp;', '&').slice(base.length);
}

async function logIn() {
  const begun = await raw('/oidc/login');
  assert.equal(begun.status, 303);
  return raw(callbackFor(begun), { Cookie: cookieOf(begun) });
}

test('a user logs in at the issuer with a browser', async () => {
  const context = await browser.newContext({ locale: 'en-US', ignoreHTTPSErrors: true });
  const page = await context.newPage();
  const visited = [];
  page.on('request', (sent) => visited.push(sent.url()));
  await page.goto(base);
  await page.getByRole('link', { name: `Log in with ${new URL(issuer.url).host}` }).click();
  await page.getByRole('link', { name: 'Continue as Alice' }).click();
  await page.getByText('alice@example.com', { exact: true }).waitFor();
  await page.getByRole('link', { name: /n1: 0 of 2 GPUs in use/ }).waitFor();
  assert.match(page.url(), new RegExp(`^${base}/(#/)?$`));
  const cookies = await context.cookies();
  assert.deepEqual(cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite })),
                   [{ name: 'tessera_session', httpOnly: true, sameSite: 'Strict' }]);
  const tokens = issuer.issued.filter((text) => text.startsWith('ey'));
  assert.equal(tokens.length, 1);
  for (const text of [...visited, ...issuer.targets]) assert.ok(!text.includes(tokens[0]), text);
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('link', { name: /^Log in with/ }).waitFor();
  await context.close();
});

test('the cookie of a login is short-lived and not for scripts', async () => {
  const begun = await raw('/oidc/login');
  assert.match(begun.headers['set-cookie'][0],
               /^tessera_login=[0-9a-f]{64}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=600$/);
  assert.ok(!begun.headers.location.includes(cookieOf(begun).split('=')[1]));
  const done = await raw(callbackFor(begun), { Cookie: cookieOf(begun) });
  assert.equal(done.status, 303);
  assert.equal(done.headers.location, '/');
  assert.ok(done.headers['set-cookie'].some((cookie) => /^tessera_login=;.*Max-Age=0/.test(cookie)));
  const session = await raw('/api/v1/session', { Cookie: cookieOf(done) });
  assert.equal(JSON.parse(session.text).user, 'alice@example.com');
});

test('a code of another login is rejected', async () => {
  const [one, two] = [await raw('/oidc/login'), await raw('/oidc/login')];
  for (const cookie of [undefined, cookieOf(two)]) {
    const answer = await raw(callbackFor(one), cookie ? { Cookie: cookie } : {});
    assert.equal(answer.status, 401);
    assert.match(answer.text, /this browser did not begin this login/);
  }
  assert.ok(!issuer.targets.includes('/token'));
  // With the state of the own login, the issuer checks the verifier.
  const stolen = new URL(callbackFor(one), base).searchParams.get('code');
  const state = new URL(callbackFor(two), base).searchParams.get('state');
  const answer = await raw(`/oidc/callback?code=${stolen}&state=${state}`, { Cookie: cookieOf(two) });
  assert.equal(answer.status, 401);
  assert.match(answer.text, /cannot exchange the code at .*\/token: status 400, invalid_grant/);
});

test('ID tokens for other logins, clients and times are rejected', async () => {
  for (const [claims, why] of [
    [{ nonce: 'other' }, /its nonce belongs to another login/],
    [{ aud: 'other' }, /its audience lacks &quot;tessera&quot;: check --oidc-client-id/],
    [{ iss: 'https://other.example' }, /its issuer is &quot;https:\/\/other.example&quot;/],
    [{ exp: Math.floor(Date.now() / 1000) - 10 }, /it has expired/],
  ]) {
    issuer.claims = claims;
    const answer = await logIn();
    assert.equal(answer.status, 401);
    assert.match(answer.text, why);
    assert.ok(!answer.headers['set-cookie'].some((cookie) => cookie.startsWith('tessera_session')));
  }
});

test('the API server rejects a forged signature', async () => {
  issuer.signer = issuer.otherKeys;
  const answer = await logIn();
  assert.equal(answer.status, 401);
  assert.match(answer.text, /the API server rejects the ID token: .*--oidc-issuer-url=https:\/\/localhost/);
  assert.ok(!answer.headers['set-cookie'].some((cookie) => cookie.startsWith('tessera_session')));
});

test('the page shows why the issuer refuses, as text', async () => {
  issuer.refusal = '<script>alert(1)</script>';
  const answer = await logIn();
  assert.equal(answer.status, 401);
  assert.match(answer.text, /refused the login: access_denied &lt;script>alert\(1\)&lt;\/script>: ask its administrator/);
  assert.ok(answer.text.includes(`<a href="${base}/">`));
});

test('the log contains neither tokens nor codes', async () => {
  await logIn();
  issuer.claims = { nonce: 'other' };
  await logIn();
  await waitFor('the log', () => consoleProcess.log.includes('its nonce belongs to another login'));
  assert.match(consoleProcess.log, /login.*alice@example.com/);
  assert.equal(issuer.issued.length, 4);
  for (const text of [...issuer.issued, kSecret]) assert.ok(!consoleProcess.log.includes(text), text);
});

// Both begin with ID tokens of some seconds. The console asks the API server again every 30 seconds, and the API
// server keeps its answer about a token for 10.
test('a session outlives its ID token if the issuer gives refresh tokens', { timeout: 300_000 }, async () => {
  issuer.seconds = 12;
  const short = { Cookie: cookieOf(await logIn()) };
  issuer.refreshes = true;
  const long = { Cookie: cookieOf(await logIn()) };
  const status = async (headers) => (await raw('/api/v1/session', headers)).status;
  await waitFor('the end of the session without refresh tokens', async () => (await status(short)) === 401, 90);
  assert.equal(await status(long), 200);
  assert.ok(issuer.refreshed > 1, `${issuer.refreshed} refreshes`);
  // An issuer revokes refresh tokens, for example if one is stolen.
  issuer.refreshTokens.clear();
  await waitFor('the end of the other session', async () => (await status(long)) === 401, 90);
  assert.match(consoleProcess.log, /a session ends with its ID token.*alice@example.com.*invalid_grant/);
  for (const text of issuer.issued) assert.ok(!consoleProcess.log.includes(text), text);
});

test('too many logins are rejected', async () => {
  const answers = await Promise.all(Array.from({ length: 100 }, () => raw('/oidc/callback?state=x&code=y')));
  assert.ok(answers.every(({ status }) => status === 401 || status === 429));
  assert.ok(answers.some(({ status }) => status === 429));
});
