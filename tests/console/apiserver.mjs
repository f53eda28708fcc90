// SPDX-License-Identifier: Apache-2.0
// A real etcd and kube-apiserver on loopback, without nodes that run anything: tests write Node and
// Pod objects themselves, and so decide what the cluster looks like.
import { spawn, execFileSync } from 'node:child_process';
import { createServer } from 'node:net';
import { mkdtempSync, readdirSync, readFileSync, writeFileSync, existsSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSign, createPrivateKey } from 'node:crypto';

const kCache = process.env.TESSERA_CACHE ?? join(homedir(), '.cache', 'tessera');

// The program that holds all components of Kubernetes, built by tests/cluster; null if it is not.
export function kubernetesProgram() {
  if (!existsSync(kCache)) return null;
  for (const name of readdirSync(kCache)) {
    const program = join(kCache, name, 'kubernetes');
    if (name.startsWith('kubernetes-') && existsSync(program)) return program;
  }
  return null;
}

// A free port below the kernel's range for outgoing connections, because such a connection could take
// the port before its server listens.
export async function freePort() {
  const [ephemeral] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split('\t').map(Number);
  for (let tries = 0; tries < 200; ++tries) {
    const port = 10000 + Math.floor(Math.random() * (Math.max(ephemeral, 11000) - 10000));
    const server = createServer();
    const free = await new Promise((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
  throw new Error('found no free port');
}

export async function waitFor(what, check, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  let last;
  while (Date.now() < end) {
    try {
      const result = await check();
      if (result) return result;
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${what} did not happen within ${seconds} s${last ? `: ${last.message}` : ''}`);
}

export class ApiServer {
  // `flagsOf`: returns further flags of kube-apiserver; called before the server starts.
  static async start(flagsOf = async () => []) {
    const server = new ApiServer();
    server.dir = mkdtempSync(join(tmpdir(), 'tessera-console-test-'));
    server.children = [];
    const at = (name) => join(server.dir, name);
    const openssl = (...args) => execFileSync('openssl', args, { cwd: server.dir, stdio: 'pipe' });
    openssl('genrsa', '-out', 'sa.key', '2048');
    openssl('rsa', '-in', 'sa.key', '-pubout', '-out', 'sa.pub');
    openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'tls.key', '-out', 'tls.crt',
            '-days', '2', '-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1');
    server.ca = readFileSync(at('tls.crt'), 'utf8');
    server.adminToken = 'admin-of-this-test';
    writeFileSync(at('tokens.csv'), `${server.adminToken},admin,admin,system:masters\n`);
    server.ports = { etcd: await freePort(), peer: await freePort(), api: await freePort() };
    server.program = kubernetesProgram();
    server.flags = await flagsOf(server);
    server.run('etcd', `--data-dir=${at('etcd')}`, '--unsafe-no-fsync', '--log-level=error',
               `--listen-client-urls=http://127.0.0.1:${server.ports.etcd}`,
               `--advertise-client-urls=http://127.0.0.1:${server.ports.etcd}`,
               `--listen-peer-urls=http://127.0.0.1:${server.ports.peer}`,
               `--initial-advertise-peer-urls=http://127.0.0.1:${server.ports.peer}`,
               `--initial-cluster=default=http://127.0.0.1:${server.ports.peer}`);
    server.startApi();
    server.url = `https://127.0.0.1:${server.ports.api}`;
    try {
      await server.ready();
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  startApi() {
    const at = (name) => join(this.dir, name);
    this.api = this.run('kube-apiserver', `--etcd-servers=http://127.0.0.1:${this.ports.etcd}`,
               '--bind-address=127.0.0.1', `--secure-port=${this.ports.api}`, '--advertise-address=127.0.0.1',
               '--endpoint-reconciler-type=none', '--service-cluster-ip-range=10.96.0.0/24',
               '--authorization-mode=RBAC', '--anonymous-auth=false', '--allow-privileged=true',
               // No controller makes ServiceAccounts for these pods, or removes the taint of a new node.
               '--disable-admission-plugins=ServiceAccount,TaintNodesByCondition',
               `--token-auth-file=${at('tokens.csv')}`, `--tls-cert-file=${at('tls.crt')}`,
               `--tls-private-key-file=${at('tls.key')}`, '--service-account-issuer=https://kubernetes.default.svc',
               `--service-account-key-file=${at('sa.pub')}`, `--service-account-signing-key-file=${at('sa.key')}`, ...this.flags);
  }

  run(...args) {
    const child = spawn(this.program, args, { cwd: this.dir, stdio: ['ignore', 'ignore', 'pipe'] });
    child.log = '';
    child.stderr.on('data', (text) => (child.log = (child.log + text).slice(-20000)));
    this.children.push(child);
    return child;
  }

  async ready() {
    await waitFor('the API server', async () => (await this.request('GET', '/readyz')).status === 200, 120);
  }

  // Sends a request. Returns { status, body }. The certificate is this test's own.
  async request(method, path, body, token = this.adminToken, type = 'application/json') {
    const { request } = await import('node:https');
    return new Promise((resolve, reject) => {
      const sent = request(
        `${this.url}${path}`,
        { method, ca: this.ca, headers: { Authorization: `Bearer ${token}`, 'Content-Type': type } },
        (response) => {
          let text = '';
          response.on('data', (part) => (text += part));
          response.on('end', () => resolve({ status: response.statusCode, body: text && text[0] === '{' ? JSON.parse(text) : text }));
        },
      );
      sent.on('error', reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  async must(method, path, body, type) {
    const answer = await this.request(method, path, body, undefined, type);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  async namespace(name) {
    await this.must('POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  }

  // A ServiceAccount with a token.
  async account(namespace, name) {
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts`;
    await this.must('POST', path, { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name } });
    const answer = await this.must('POST', `${path}/${name}/token`, {
      apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { expirationSeconds: 3600 },
    });
    return answer.status.token;
  }

  // The token with another expiry, `seconds` from now, and a correct signature.
  expiring(token, seconds) {
    const [head, claims] = token.split('.').slice(0, 2).map((part) => JSON.parse(Buffer.from(part, 'base64url')));
    claims.exp = Math.floor(Date.now() / 1000) + seconds;
    claims.iat = claims.nbf = claims.exp - 3600;
    const text = [head, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    const key = createPrivateKey(readFileSync(join(this.dir, 'sa.key')));
    return `${text}.${createSign('RSA-SHA256').update(text).sign(key).toString('base64url')}`;
  }

  async role(name, rules) {
    await this.must('POST', '/apis/rbac.authorization.k8s.io/v1/clusterroles', {
      apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole', metadata: { name }, rules,
    });
  }

  // Binds in `namespace`, or in the whole cluster if it is undefined.
  async bind(role, account, namespace) {
    const kind = namespace ? 'RoleBinding' : 'ClusterRoleBinding';
    const scope = namespace ? `/namespaces/${namespace}/rolebindings` : '/clusterrolebindings';
    const [ns, name] = account.split('/');
    await this.must('POST', `/apis/rbac.authorization.k8s.io/v1${scope}`, {
      apiVersion: 'rbac.authorization.k8s.io/v1', kind, metadata: { name: `${role}-${ns}-${name}` },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role },
      subjects: [{ kind: 'ServiceAccount', namespace: ns, name }],
    });
  }

  // A ready node with GPUs as tessera-agent publishes them.
  nodeObject(name, gpus, pool = 'train') {
    const links = gpus.map((_, i) => gpus.slice(0, i).map((_, j) => (Math.floor(i / 4) === Math.floor(j / 4) ? 'NV12+PIX' : 'SYS')));
    const devices = {
      version: 1, driver: '550.163.01', cuda: 12040, links,
      gpus: gpus.map((gpu, index) => ({
        uuid: `GPU-${name}-${index}`, index, minor: index, model: 'NVIDIA A100-SXM4-80GB', bytes: 80 * 2 ** 30,
        pci: `0000:0${index}:00.0`, numa: Math.floor(index / 4), cc: '8.0', ...gpu,
      })),
    };
    const metadata = {
      name, labels: { 'gaia.tencent.com/gpu-pool': pool },
      annotations: { 'tessera.dev/devices': JSON.stringify(devices) },
    };
    const amounts = {
      cpu: '64', memory: '512Gi', 'nvidia.com/gpu': String(gpus.length), 'aliyun.com/gpu-mem': String(80 * gpus.length),
      'tencent.com/vcuda-core': String(100 * gpus.length), 'tencent.com/vcuda-memory': String(320 * gpus.length),
    };
    const status = { conditions: [{ type: 'Ready', status: 'True' }], allocatable: amounts, capacity: amounts };
    return { apiVersion: 'v1', kind: 'Node', metadata, status };
  }

  async node(name, gpus, pool) {
    const node = this.nodeObject(name, gpus, pool);
    const made = await this.request('POST', '/api/v1/nodes', node);
    if (made.status === 201) return;
    if (made.status !== 409) throw new Error(`cannot create node ${name}: ${made.status} ${JSON.stringify(made.body)}`);
    await this.must('PATCH', `/api/v1/nodes/${name}`, { metadata: node.metadata }, 'application/merge-patch+json');
  }

  // A pod that requests `limits`; bound to `node` with the assignment, or waiting.
  async pod(namespace, name, limits, options) {
    await this.must('POST', `/api/v1/namespaces/${namespace}/pods`, this.podObject(name, limits, options));
  }

  podObject(name, limits, { node, gpus, labels } = {}) {
    const pod = {
      apiVersion: 'v1', kind: 'Pod', metadata: { name, labels, annotations: {} },
      spec: { containers: [{ name: 'main', image: 'x', resources: { limits } }], nodeName: node },
    };
    if (gpus) pod.metadata.annotations['tessera.dev/assignment'] = JSON.stringify({ version: 1, containers: { main: gpus } });
    return pod;
  }

  // A ready pod without GPUs, as a kubelet reports it.
  async runningPod(namespace, name, node, labels, owner) {
    const path = `/api/v1/namespaces/${namespace}/pods`;
    await this.must('POST', path, {
      apiVersion: 'v1', kind: 'Pod', metadata: { name, labels, ownerReferences: owner && [owner] },
      spec: { containers: [{ name: 'main', image: 'x' }], nodeName: node },
    });
    const status = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] };
    await this.must('PATCH', `${path}/${name}/status`, { status }, 'application/merge-patch+json');
  }

  // A budget that allows no disruption, with the status that its controller would write.
  async budget(namespace, name, labels) {
    const path = `/apis/policy/v1/namespaces/${namespace}/poddisruptionbudgets`;
    await this.must('POST', path, {
      apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata: { name },
      spec: { minAvailable: 1, selector: { matchLabels: labels } },
    });
    const status = { observedGeneration: 1, disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1 };
    await this.must('PATCH', `${path}/${name}/status`, { status }, 'application/merge-patch+json');
  }

  // The agents of a pool, as an installation writes their DaemonSet.
  async agents(name, pool, nodeSelector, rules, shares, annotations) {
    const labels = { 'app.kubernetes.io/name': 'tessera-agent', ...(pool && { 'tessera.dev/pool': pool }) };
    const terms = { nodeSelectorTerms: [{ matchExpressions: rules }] };
    await this.must('POST', '/apis/apps/v1/namespaces/tessera-system/daemonsets', {
      apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name, labels, annotations },
      spec: {
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            nodeSelector, containers: [{ name: 'agent', image: 'x', args: [`--shared-resources=${shares}`] }],
            affinity: rules.length > 0 ? { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: terms } } : undefined,
          },
        },
      },
    });
  }

  kubeconfig(token) {
    const path = join(this.dir, `kubeconfig-${token.slice(-8)}`);
    writeFileSync(path, JSON.stringify({
      apiVersion: 'v1', kind: 'Config', 'current-context': 'x',
      contexts: [{ name: 'x', context: { cluster: 'x', user: 'x' } }],
      clusters: [{ name: 'x', cluster: { server: this.url, 'certificate-authority': join(this.dir, 'tls.crt') } }],
      users: [{ name: 'x', user: { token } }],
    }));
    return path;
  }

  async stopApi() {
    this.api.kill('SIGKILL');
    await new Promise((resolve) => this.api.once('exit', resolve));
  }

  async stop() {
    for (const child of this.children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}
