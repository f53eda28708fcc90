// SPDX-License-Identifier: Apache-2.0
// All nodes with their GPUs, grouped by pool and model. Only what is visible is in the document, so
// thousands of nodes cost as much as a screen full.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { gpuText, memoryText, tenantColor } from './format';
import { t, type Key } from './i18n';
import { cluster, idle, useCluster, works, type Gpu, type Node } from './store';
import { Empty } from './parts';

type Mode = 'allocation' | 'memory' | 'tenant' | 'health';
type Shown = 'all' | 'unhealthy' | 'free' | 'partial';

const kCardWidth = 160;
const kGap = 8;
const kHeaderHeight = 40;
const kGpusPerLine = 8;
const kOverscan = 600;

interface Row {
  top: number;
  height: number;
  header?: string;
  nodes: Node[];
}

function fill(gpu: Gpu, mode: Mode): number {
  const memory = gpu.memory > 0 ? gpu.used / gpu.memory : 0;
  if (mode === 'memory') return memory;
  return Math.min(1, Math.max(gpu.usedMilli / 1000, memory));
}

function GpuCell({ gpu, mode }: { gpu: Gpu; mode: Mode }) {
  if (!works(gpu)) return <span class="gpu bad">×</span>;
  if (mode === 'health') return <span class={`gpu ${gpu.state}`} />;
  if (mode === 'tenant') {
    // Slices side by side, each as wide as its share.
    return (
      <span class="gpu">
        {gpu.held.map(([uid, milli, bytes]) => {
          const pod = cluster.pods.get(uid);
          const part = Math.max(milli / 1000, gpu.memory > 0 ? bytes / gpu.memory : 0);
          return (
            <span
              class={`slice ${pod ? `tenant${tenantColor(pod.namespace)}` : 'hidden-tenant'}`}
              style={{ width: `${Math.min(1, part) * 100}%` }}
            />
          );
        })}
      </span>
    );
  }
  return (
    <span class="gpu">
      <span class="slice used" style={{ width: `${fill(gpu, mode) * 100}%` }} />
    </span>
  );
}

function NodeCard({ node, mode }: { node: Node; mode: Mode }) {
  const busy = node.gpus.filter((gpu) => gpu.held.length > 0).length;
  const bad = node.gpus.filter((gpu) => !works(gpu)).length;
  const marks = [node.ready ? '' : t('notReady'), node.cordoned ? t('cordoned') : ''].filter(Boolean);
  const label = [t('nodeLabel', node.name, busy, node.gpus.length, bad), ...marks, node.problem ?? ''];
  return (
    <a
      class={`card${node.ready ? '' : ' not-ready'}${node.cordoned ? ' cordoned' : ''}${node.problem ? ' problem' : ''}`}
      href={`#/node/${encodeURIComponent(node.name)}`}
      aria-label={label.filter(Boolean).join(', ')}
      data-node={node.name}
    >
      <span class="card-name">{node.name}</span>
      <span class="gpus" aria-hidden="true">
        {node.gpus.map((gpu) => (
          <GpuCell key={gpu.uuid} gpu={gpu} mode={mode} />
        ))}
      </span>
    </a>
  );
}

function matches(node: Node, filter: string, shown: Shown): boolean {
  if (shown === 'unhealthy' && node.ready && !node.problem && node.gpus.every(works)) return false;
  if (shown === 'free' && !node.gpus.some(idle)) return false;
  if (shown === 'partial' && !node.gpus.some((g) => fill(g, 'allocation') > 0 && fill(g, 'allocation') < 1)) {
    return false;
  }
  if (!filter) return true;
  return `${node.name} ${node.pool} ${node.model}`.toLowerCase().includes(filter);
}

function rowsOf(nodes: Node[], columns: number): { rows: Row[]; height: number } {
  const groups = new Map<string, Node[]>();
  for (const node of nodes) {
    const key = `${node.pool}\0${node.model}`;
    const group = groups.get(key);
    if (group) group.push(node);
    else groups.set(key, [node]);
  }
  const rows: Row[] = [];
  let top = 0;
  for (const key of [...groups.keys()].sort()) {
    const group = groups.get(key)!;
    group.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    const gpus = group.flatMap((node) => node.gpus);
    const [pool, model] = key.split('\0');
    const header = t('group', pool || t('noPool'), model || '–', group.length, gpus.length, gpus.filter(idle).length);
    rows.push({ top, height: kHeaderHeight, header, nodes: [] });
    top += kHeaderHeight;
    const most = Math.max(1, ...group.map((node) => node.gpus.length));
    const height = 44 + Math.ceil(most / kGpusPerLine) * 20 + kGap;
    for (let i = 0; i < group.length; i += columns) {
      rows.push({ top, height, nodes: group.slice(i, i + columns) });
      top += height;
    }
  }
  return { rows, height: top };
}

// Moves the focus between cards with the arrow keys.
function onArrow(event: KeyboardEvent) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 0, ArrowUp: 0 }[event.key];
  const card = (event.target as HTMLElement).closest<HTMLElement>('.card');
  if (step === undefined || !card) return;
  const cards = [...document.querySelectorAll<HTMLElement>('.card')];
  const at = card.getBoundingClientRect();
  let next = cards[cards.indexOf(card) + step];
  if (step === 0) {
    const down = event.key === 'ArrowDown';
    const beside = cards.filter((other) => {
      const box = other.getBoundingClientRect();
      return box.left === at.left && (down ? box.top > at.top : box.top < at.top);
    });
    next = down ? beside[0] : beside[beside.length - 1];
  }
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
}

function NodeList({ nodes, mode }: { nodes: Node[]; mode: Mode }) {
  const list = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(1024);
  const [view, setView] = useState({ from: 0, to: 1200 });
  const columns = Math.max(1, Math.floor((width + kGap) / (kCardWidth + kGap)));
  const { rows, height } = useMemo(() => rowsOf(nodes, columns), [nodes, columns]);

  useLayoutEffect(() => {
    const measure = () => {
      const box = list.current!.getBoundingClientRect();
      setWidth(box.width);
      // Steps, so that most scrolling changes nothing.
      const from = Math.floor((-box.top - kOverscan) / 200) * 200;
      const to = Math.ceil((window.innerHeight - box.top + kOverscan) / 200) * 200;
      setView((old) => (old.from === from && old.to === to ? old : { from, to }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(list.current!);
    window.addEventListener('scroll', measure, { passive: true });
    window.addEventListener('resize', measure);
    return () => {
      observer.disconnect();
      window.removeEventListener('scroll', measure);
      window.removeEventListener('resize', measure);
    };
  }, []);

  return (
    <div class="map" ref={list} style={{ height: `${height}px` }} onKeyDown={onArrow}>
      {rows.map((row) => {
        if (row.top + row.height < view.from || row.top > view.to) return null;
        const style = { top: `${row.top}px` };
        if (row.header) {
          return (
            <h2 class="group" style={style} key={`h${row.header}`}>
              {row.header}
            </h2>
          );
        }
        return (
          <div class="row" style={{ ...style, gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` }} key={row.nodes[0]!.name}>
            {row.nodes.map((node) => (
              <NodeCard key={node.name} node={node} mode={mode} />
            ))}
          </div>
        );
      })}
    </div>
  );
}

function Legend({ mode }: { mode: Mode }) {
  const tenants = mode === 'tenant' ? [...new Set([...cluster.pods.values()].filter((pod) => pod.node).map((pod) => pod.namespace))].sort() : [];
  return (
    <ul class="legend">
      <li>
        <span class="gpu" aria-hidden="true" /> {t('legendFree')}
      </li>
      {mode === 'tenant' ? (
        <>
          {tenants.slice(0, 12).map((name) => (
            <li key={name}>
              <span class={`gpu tenant${tenantColor(name)}`} aria-hidden="true" /> {name}
            </li>
          ))}
          <li>
            <span class="gpu hidden-tenant" aria-hidden="true" /> {t('legendHidden')}
          </li>
        </>
      ) : (
        <li>
          <span class={`gpu ${mode === 'health' ? 'suspect' : 'full'}`} aria-hidden="true" />{' '}
          {t(mode === 'health' ? 'suspect' : 'legendFull')}
        </li>
      )}
      <li>
        <span class="gpu bad" aria-hidden="true">
          ×
        </span>{' '}
        {t('legendBad')}
      </li>
    </ul>
  );
}

function Summary({ nodes }: { nodes: Node[] }) {
  const gpus = nodes.flatMap((node) => node.gpus);
  const milli = gpus.reduce((sum, gpu) => sum + gpu.usedMilli, 0);
  const used = gpus.reduce((sum, gpu) => sum + gpu.used, 0);
  const memory = gpus.reduce((sum, gpu) => sum + gpu.memory, 0);
  const bad = gpus.filter((gpu) => !works(gpu)).length;
  const waiting = [...cluster.pods.values()].filter((pod) => pod.state === 'waiting').length;
  return (
    <ul class="summary">
      <li>{t('nodesCount', nodes.length)}</li>
      <li>{t('gpusCount', gpus.length)}</li>
      <li>
        {t('compute')} {gpuText(milli)}/{gpus.length}
      </li>
      <li>
        {t('memory')} {memoryText(used)}/{memoryText(memory)}
      </li>
      <li>{t('idleCount', gpus.filter(idle).length)}</li>
      <li class={bad > 0 ? 'alarm' : ''}>{t('unhealthyCount', bad)}</li>
      <li>{t('waitingCount', waiting)}</li>
    </ul>
  );
}

const kModes: [Mode, Key][] = [
  ['allocation', 'byAllocation'],
  ['memory', 'byMemory'],
  ['tenant', 'byTenant'],
  ['health', 'byHealth'],
];
const kShown: [Shown, Key][] = [
  ['all', 'showAll'],
  ['unhealthy', 'showUnhealthy'],
  ['free', 'showFree'],
  ['partial', 'showPartial'],
];

export function MapPage() {
  const { nodes, version, mayListNodes } = useCluster();
  const [mode, setMode] = useState<Mode>('allocation');
  const [shown, setShown] = useState<Shown>('all');
  const [filter, setFilter] = useState('');
  const all = useMemo(() => [...nodes.values()], [version, nodes.size]);
  const visible = useMemo(
    () => all.filter((node) => matches(node, filter.trim().toLowerCase(), shown)),
    [all, filter, shown],
  );
  useEffect(() => window.scrollTo(0, 0), [shown]);
  if (!mayListNodes) return <Empty page title={t('forbiddenNodes')} hint={t('forbiddenNodesHint')} />;
  if (all.length === 0) return <Empty page title={t('emptyMap')} hint={t('emptyMapHint')} />;
  return (
    <>
      <h1 class="unseen">{t('map')}</h1>
      <Summary nodes={all} />
      <div class="tools">
        <label>
          {t('filter')}
          <input type="search" placeholder={t('filterNodes')} value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        </label>
        <label>
          {t('colorBy')}
          <select value={mode} onChange={(e) => setMode(e.currentTarget.value as Mode)}>
            {kModes.map(([value, key]) => (
              <option value={value}>{t(key)}</option>
            ))}
          </select>
        </label>
        <label>
          {t('show')}
          <select value={shown} onChange={(e) => setShown(e.currentTarget.value as Shown)}>
            {kShown.map(([value, key]) => (
              <option value={value}>{t(key)}</option>
            ))}
          </select>
        </label>
        <Legend mode={mode} />
        <a href="#/add-node">{t('addNode')}</a>
      </div>
      {visible.length === 0 ? <Empty title={t('noMatch')} /> : <NodeList nodes={visible} mode={mode} />}
    </>
  );
}
