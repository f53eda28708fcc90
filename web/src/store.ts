// SPDX-License-Identifier: Apache-2.0
// The cluster as the server streams it. One stream feeds all pages; a lost connection is retried by
// the browser and begins with a snapshot. The snapshot of a large cluster comes in parts. A new page
// shows each part as it arrives. A page that was connected before shows the old state until the last
// part has arrived.
//
// The values that pages need of a node or pod at every change are computed once, when the object arrives.
import { useEffect, useState } from 'preact/hooks';
import { plainText, t } from './i18n';

// [uid of the pod, thousandths, bytes, namespace of another tenant if the console shows it]
export type Held = [string, number, number, string?];

export interface Gpu {
  uuid: string;
  name: string;
  model: string;
  memory: number; // in bytes, like `used`
  used: number;
  usedMilli: number;
  slice?: string;
  state: 'healthy' | 'suspect' | 'unhealthy' | 'recovering' | 'withheld' | 'gone';
  why?: string;
  numa?: number;
  held: Held[];
}

export interface Node {
  name: string;
  pool: string;
  model: string;
  ready: boolean;
  cordoned: boolean;
  driver: string;
  problem?: string;
  gpus: Gpu[];
  mig?: number[]; // GPUs in MIG mode without a slice, which are not among `gpus`
  // Computed here.
  key: string; // for sorting by pool, model and name, with numbers by value
  sliced: boolean; // some of `gpus` are MIG instances
  search: string;
  sum: Sum;
}

export interface Sum {
  gpus: number;
  milli: number;
  used: number;
  memory: number;
  busy: number;
  idle: number;
  partial: number;
  bad: number;
}

export interface Pod {
  uid: string;
  namespace: string;
  name: string;
  state: 'waiting' | 'bound' | 'running' | 'deleting';
  node: string;
  request: string;
  created: number;
  restarts?: number; // absent if 0
  why?: string; // why the pod waits, or why a container does not run
  // Computed here.
  key: string; // waiting pods first
  search: string;
}

export function podLink(namespace: string, name: string): string {
  return `#/workload/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

export interface Session {
  user: string;
  csrf: string;
  mayListNodes: boolean;
  mayListAllPods: boolean;
  otherTenants: 'namespaces' | 'shares' | 'sums';
  history: boolean; // whether the console has a history of metrics
  dashboard: boolean;
  version: string;
}

interface Snapshot {
  version: number;
  mayListNodes: boolean;
  nodes: Node[];
  pods: Pod[];
  more: boolean;
}

interface Change {
  version: number;
  nodes: Node[];
  nodesGone: string[];
  pods: Pod[];
  podsGone: string[];
}

export const cluster = {
  loaded: false, // the first part of a snapshot has arrived
  complete: false, // a whole snapshot has arrived
  connected: false,
  lastEventAt: 0, // in milliseconds since 1970
  version: 0,
  mayListNodes: true,
  staleSince: '',
  error: '',
  nodes: new Map<string, Node>(),
  pods: new Map<string, Pod>(),
};
// The snapshot whose parts are arriving. On a new page its maps are those of `cluster`.
let arriving: { nodes: Map<string, Node>; pods: Map<string, Pod> } = cluster;

// Whether the agent offers the GPU to pods.
export function isOffered(gpu: Gpu): boolean {
  return gpu.state === 'healthy' || gpu.state === 'suspect';
}

// Whether a pod holds a part of the GPU. The pod may be hidden.
export function busy(gpu: Gpu): boolean {
  return gpu.held.length > 0 || gpu.usedMilli > 0 || gpu.used > 0;
}

export function idle(gpu: Gpu): boolean {
  return !busy(gpu) && isOffered(gpu);
}

// Whether the GPU is in use, and has a free part that a pod could get.
function partial(gpu: Gpu): boolean {
  return isOffered(gpu) && !gpu.slice && busy(gpu) && gpu.usedMilli < 1000 && gpu.used < gpu.memory;
}

export function addUp(sums: Iterable<Sum>): Sum {
  const all: Sum = { gpus: 0, milli: 0, used: 0, memory: 0, busy: 0, idle: 0, partial: 0, bad: 0 };
  for (const sum of sums) {
    all.gpus += sum.gpus;
    all.milli += sum.milli;
    all.used += sum.used;
    all.memory += sum.memory;
    all.busy += sum.busy;
    all.idle += sum.idle;
    all.partial += sum.partial;
    all.bad += sum.bad;
  }
  return all;
}

const sumOf = (gpu: Gpu): Sum => ({
  gpus: 1,
  milli: gpu.usedMilli,
  used: gpu.used,
  memory: gpu.memory,
  busy: busy(gpu) ? 1 : 0,
  idle: idle(gpu) ? 1 : 0,
  partial: partial(gpu) ? 1 : 0,
  bad: isOffered(gpu) ? 0 : 1,
});

const kNone: Held[] = [];
const numbersByValue = (text: string) => text.replace(/\d+/g, (digits) => digits.padStart(10, '0'));

// The server omits amounts of zero, the state "healthy", and the model of a GPU if it is the node's model.
function completed(node: Node): Node {
  for (const gpu of node.gpus) {
    gpu.model ??= node.model;
    gpu.used ??= 0;
    gpu.usedMilli ??= 0;
    gpu.state ??= 'healthy';
    gpu.held ??= kNone;
  }
  node.key = `${node.pool}\0${node.model}\0${numbersByValue(node.name)}`;
  node.search = `${node.name} ${node.pool} ${node.model} ${node.cordoned ? 'cordoned' : ''}`.toLowerCase();
  node.sliced = node.gpus.some((gpu) => gpu.slice);
  node.sum = addUp(node.gpus.map(sumOf));
  return node;
}

function completedPod(pod: Pod): Pod {
  pod.key = `${pod.state === 'waiting' ? 0 : 1}${pod.namespace}\0${numbersByValue(pod.name)}`;
  pod.search = `${pod.namespace}/${pod.name} ${pod.node}`.toLowerCase();
  return pod;
}

// The values of a map in the order of their keys. The sorted array is reused, so that sorting after a
// change takes about one pass.
class Order<T extends { key: string }> {
  private sorted: T[] = [];
  private outdated = false;
  version = 0;

  outdate() {
    this.outdated = true;
    this.version++;
  }

  // The same array as before if nothing has changed.
  of(map: Map<string, T>, name: (item: T) => string): T[] {
    if (!this.outdated) return this.sorted;
    this.outdated = false;
    const next: T[] = [];
    const seen = new Set<string>();
    for (const item of this.sorted) {
      const now = map.get(name(item));
      if (!now) continue;
      next.push(now);
      seen.add(name(item));
    }
    if (seen.size < map.size) for (const [id, item] of map) if (!seen.has(id)) next.push(item);
    this.sorted = next.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    return this.sorted;
  }
}

const nodeOrder = new Order<Node>();
const podOrder = new Order<Pod>();
export const sortedNodes = () => nodeOrder.of(cluster.nodes, (node) => node.name);
export const sortedPods = () => podOrder.of(cluster.pods, (pod) => pod.uid);
// A number that changes whenever pods change.
export const podVersion = () => podOrder.version;

const listeners = new Set<() => void>();
let scheduled = false;
let generation = 0;

// Many events of one frame cause one rendering.
function changed() {
  generation++;
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const listener of listeners) listener();
  });
}

export function useCluster() {
  const [, update] = useState(0);
  const rendered = generation;
  useEffect(() => {
    const listener = () => update((n) => n + 1);
    listeners.add(listener);
    // An event may have arrived between the rendering and this effect.
    if (generation !== rendered) listener();
    return () => void listeners.delete(listener);
  }, []);
  return cluster;
}

let session: Session | null = null;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

let onLoggedOut: () => void = () => {};

const kMaxBody = 1 << 20; // bytes that the server accepts

export async function api<T>(path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { headers: { Accept: 'application/json' } };
  if (body !== undefined) {
    init.method = 'POST';
    init.body = JSON.stringify(body);
    if (new Blob([init.body]).size > kMaxBody) throw new ApiError(413, t('tooLarge'));
    init.headers = { 'Content-Type': 'application/json', 'X-Tessera-CSRF': session?.csrf ?? '' };
  }
  const response = await fetch(path, init);
  const text = await response.text();
  let json: { error?: string } = {};
  try {
    json = JSON.parse(text);
  } catch {
    json = { error: text };
  }
  if (response.ok) return json as T;
  if (response.status === 401 && session) onLoggedOut();
  throw new ApiError(response.status, plainText(json.error ?? response.statusText));
}

// The part of a GPU that hidden pods hold, if the console shows only sums of other tenants; else 0.
export function hiddenPart(gpu: Gpu): { milli: number; bytes: number } {
  const rest = { milli: 0, bytes: 0 };
  if (session?.mayListAllPods || session?.otherTenants !== 'sums') return rest;
  rest.milli = gpu.usedMilli;
  rest.bytes = gpu.used;
  for (const [, milli, bytes] of gpu.held) {
    rest.milli -= milli;
    rest.bytes -= bytes;
  }
  return rest;
}

export function hasHistory(): boolean {
  return session?.history ?? false;
}

export async function loadSession(): Promise<Session> {
  session = await api<Session>('/api/v1/session');
  return session;
}

const kSilence = 9000; // in milliseconds: three beats of the server
const kConnect = 10_000; // in milliseconds, for the first event of a connection

let source: EventSource | null = null;
let silenceTimer = 0;

// The events that wait until the browser has shown the first nodes of a new page; null: events are taken at once.
let delayedEvents: (() => void)[] | null = null;

function delayEvents() {
  delayedEvents = [];
  const release = () => {
    const waiting = delayedEvents ?? [];
    delayedEvents = null;
    for (const take of waiting) take();
  };
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(release)));
  setTimeout(release, 500); // a hidden page has no frames
}

// If the network drops the connection or the server hangs, the browser reports no error. So this function watches
// whether the server's beats arrive.
function watchSilence(loggedOut: () => void) {
  clearTimeout(silenceTimer);
  const wait = cluster.connected ? cluster.lastEventAt + kSilence - Date.now() : kConnect;
  silenceTimer = window.setTimeout(() => {
    if (cluster.connected && Date.now() - cluster.lastEventAt < kSilence) return watchSilence(loggedOut);
    cluster.connected = false;
    changed();
    connect(loggedOut);
  }, wait);
}

function follow(type: string, take: (data: never) => void) {
  source!.addEventListener(type, (event) => {
    cluster.lastEventAt = Date.now();
    const run = () => {
      take(JSON.parse((event as MessageEvent<string>).data) as never);
      changed();
    };
    delayedEvents ? delayedEvents.push(run) : run();
  });
}

function takePart(part: { nodes: Node[]; pods: Pod[]; more: boolean }) {
  for (const node of part.nodes) arriving.nodes.set(node.name, completed(node));
  for (const pod of part.pods) arriving.pods.set(pod.uid, completedPod(pod));
  if (part.nodes.length > 0 || !part.more) nodeOrder.outdate();
  if (part.pods.length > 0 || !part.more) podOrder.outdate();
  if (part.more) return;
  cluster.nodes = arriving.nodes;
  cluster.pods = arriving.pods;
  cluster.complete = true;
  arriving = cluster;
}

export function connect(loggedOut: () => void) {
  onLoggedOut = loggedOut;
  source?.close();
  delayedEvents = null;
  source = new EventSource('/api/v1/events');
  source.onopen = () => {
    cluster.connected = true;
    cluster.lastEventAt = Date.now();
    watchSilence(loggedOut);
    changed();
  };
  watchSilence(loggedOut);
  source.onerror = () => {
    cluster.connected = false;
    changed();
    // The browser gives up after an error response, for example of an ended session.
    if (source?.readyState === EventSource.CLOSED) {
      setTimeout(() => loadSession().then(() => connect(loggedOut), () => connectLater(loggedOut)), 1000);
    }
  };
  follow('state', (state: { staleSince?: string; error?: string }) => {
    cluster.staleSince = state.staleSince ?? '';
    cluster.error = state.error ?? '';
  });
  follow('snapshot', (snapshot: Snapshot) => {
    cluster.loaded = true;
    cluster.version = snapshot.version;
    cluster.mayListNodes = snapshot.mayListNodes;
    const empty = { nodes: new Map<string, Node>(), pods: new Map<string, Pod>() };
    arriving = cluster.complete ? empty : Object.assign(cluster, empty);
    nodeOrder.outdate();
    podOrder.outdate();
    if (!cluster.complete && snapshot.more) delayEvents();
    takePart(snapshot);
  });
  follow('part', takePart);
  source.addEventListener('beat', () => (cluster.lastEventAt = Date.now()));
  follow('change', (change: Change) => {
    cluster.version = change.version;
    const nodes = change.nodes.map(completed);
    const pods = change.pods.map(completedPod);
    if (nodes.length + change.nodesGone.length > 0) nodeOrder.outdate();
    if (pods.length + change.podsGone.length > 0) podOrder.outdate();
    for (const target of new Set([cluster, arriving])) {
      for (const node of nodes) target.nodes.set(node.name, node);
      for (const name of change.nodesGone) target.nodes.delete(name);
      for (const pod of pods) target.pods.set(pod.uid, pod);
      for (const uid of change.podsGone) target.pods.delete(uid);
    }
  });
  source.addEventListener('end', () => {
    disconnect();
    loggedOut();
  });
}

function connectLater(loggedOut: () => void) {
  if (session) setTimeout(() => session && connect(loggedOut), 3000);
}

export function disconnect() {
  source?.close();
  clearTimeout(silenceTimer);
  source = null;
  delayedEvents = null;
  session = null;
  cluster.loaded = cluster.complete = false;
  cluster.nodes.clear();
  cluster.pods.clear();
  nodeOrder.outdate();
  podOrder.outdate();
}
