// SPDX-License-Identifier: Apache-2.0
// Utilization and temperature of GPUs for the map. One request asks for all nodes that are in view
// and whose values are old, and only while the map shows such values and the page is visible.
import { useEffect, useRef, useState } from 'preact/hooks';
import { api, type Gpu } from './store';

const kAskIntervalMs = 1000;
const kFreshMs = 10_000; // the server does not read an agent more often
const kStaleMs = 60_000;
const kMaxNodes = 1000; // nodes in one request

export type Gauge = 'utilization' | 'temperature';

export interface NodeGauges {
  at: number; // when the values were read; 0: never
  stale: boolean;
  next: number; // when to ask again
  gpus: Record<string, [number | null, number | null]>;
  error: string;
}

interface Answer {
  nodes: Record<string, { age?: number; gpus?: NodeGauges['gpus']; error?: string }>;
}

export function gaugeOf(gauges: NodeGauges | undefined, gpu: Gpu, gauge: Gauge): number | null {
  return gauges?.gpus[gpu.uuid]?.[gauge === 'utilization' ? 0 : 1] ?? null;
}

function take(known: Map<string, NodeGauges>, answer: Answer): boolean {
  const now = Date.now();
  for (const [name, { age, gpus = {}, error = '' }] of Object.entries(answer.nodes)) {
    const at = age === undefined ? 0 : now - age * 1000;
    const next = (error ? now : at) + kFreshMs;
    known.set(name, { at, gpus, error, next, stale: at > 0 && now - at > kStaleMs });
  }
  return Object.keys(answer.nodes).length > 0;
}

// Marks the values of the nodes `names` that are too old as stale. Returns whether a mark has changed.
function markStale(known: Map<string, NodeGauges>, names: string[]): boolean {
  let changed = false;
  for (const name of names) {
    const gauges = known.get(name);
    if (!gauges || gauges.stale || gauges.at === 0 || Date.now() - gauges.at <= kStaleMs) continue;
    known.set(name, { ...gauges, stale: true });
    changed = true;
  }
  return changed;
}

// The values of the nodes `names`; the list may change. `failure`: why the console does not answer.
export function useGauges(active: boolean, names: string[]): { known: Map<string, NodeGauges>; failure?: Error } {
  const [known] = useState(() => new Map<string, NodeGauges>());
  const [failure, setFailure] = useState<Error | undefined>();
  const [, update] = useState(0);
  const inView = useRef(names);
  inView.current = names;
  useEffect(() => {
    if (!active) return;
    let timer = 0;
    let current = true;
    const ask = async () => {
      let wait = kAskIntervalMs;
      const due = inView.current.filter((name) => (known.get(name)?.next ?? 0) <= Date.now()).slice(0, kMaxNodes);
      let changed = markStale(known, inView.current);
      if (due.length > 0 && !document.hidden) {
        try {
          const answer = await api<Answer>('/api/v1/gauges', { nodes: due });
          changed = take(known, answer) || changed;
          if (current) setFailure(undefined);
        } catch (error) {
          wait = kFreshMs;
          if (current) setFailure(error as Error);
        }
      }
      if (!current) return;
      if (changed) update((n) => n + 1);
      timer = window.setTimeout(ask, wait);
    };
    void ask();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [active]);
  return { known, failure };
}
