// SPDX-License-Identifier: Apache-2.0
// The cluster as the server streams it. One stream feeds all pages; a lost connection is retried by
// the browser and begins with a snapshot.
import { useEffect, useState } from 'preact/hooks';

// [uid of the pod, thousandths, bytes]
export type Held = [string, number, number];

export interface Gpu {
  uuid: string;
  name: string;
  model: string;
  memory: number;
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
}

export interface Pod {
  uid: string;
  namespace: string;
  name: string;
  state: 'waiting' | 'bound' | 'deleting';
  node: string;
  request: string;
  created: number;
  why?: string;
}

export interface Session {
  user: string;
  csrf: string;
  mayListNodes: boolean;
  mayListAllPods: boolean;
  dashboard: boolean;
  version: string;
}

interface Snapshot {
  version: number;
  mayListNodes: boolean;
  nodes: Node[];
  pods: Pod[];
}

interface Change {
  version: number;
  nodes: Node[];
  nodesGone: string[];
  pods: Pod[];
  podsGone: string[];
}

export const cluster = {
  loaded: false,
  connected: false,
  version: 0,
  mayListNodes: true,
  staleSince: '',
  error: '',
  nodes: new Map<string, Node>(),
  pods: new Map<string, Pod>(),
};

export function works(gpu: Gpu): boolean {
  return gpu.state === 'healthy' || gpu.state === 'suspect';
}

export function idle(gpu: Gpu): boolean {
  return gpu.held.length === 0 && works(gpu);
}

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

export async function api<T>(path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { headers: { Accept: 'application/json' } };
  if (body !== undefined) {
    init.method = 'POST';
    init.body = JSON.stringify(body);
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
  throw new ApiError(response.status, json.error ?? response.statusText);
}

export async function loadSession(): Promise<Session> {
  session = await api<Session>('/api/v1/session');
  return session;
}

let source: EventSource | null = null;

function follow(type: string, take: (data: never) => void) {
  source!.addEventListener(type, (event) => {
    take(JSON.parse((event as MessageEvent<string>).data) as never);
    changed();
  });
}

export function connect(loggedOut: () => void) {
  onLoggedOut = loggedOut;
  source?.close();
  source = new EventSource('/api/v1/events');
  source.onopen = () => {
    cluster.connected = true;
    changed();
  };
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
    cluster.nodes = new Map(snapshot.nodes.map((node) => [node.name, node]));
    cluster.pods = new Map(snapshot.pods.map((pod) => [pod.uid, pod]));
  });
  follow('change', (change: Change) => {
    cluster.version = change.version;
    for (const node of change.nodes) cluster.nodes.set(node.name, node);
    for (const name of change.nodesGone) cluster.nodes.delete(name);
    for (const pod of change.pods) cluster.pods.set(pod.uid, pod);
    for (const uid of change.podsGone) cluster.pods.delete(uid);
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
  source = null;
  session = null;
  cluster.loaded = false;
  cluster.nodes.clear();
  cluster.pods.clear();
}
