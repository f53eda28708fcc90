// SPDX-License-Identifier: Apache-2.0
// All nodes with their GPUs, grouped by pool and model. Only what is visible is in the document, so
// thousands of nodes cost as much as a screen full.
import { Component } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { gpuText, memoryText, tenantColor } from './format';
import { gaugeOf, useGauges, type Gauge, type NodeGauges } from './gauges';
import { currentLanguage, t, type Key } from './i18n';
import { addUp, cluster, hiddenPart, sortedNodes, useCluster, works, type Gpu, type Held, type Node } from './store';
import { Empty, Filter, UsageFailure } from './parts';

type Mode = 'allocation' | 'memory' | 'tenant' | 'health' | Gauge;
type Shown = 'all' | 'unhealthy' | 'free' | 'partial';

const kCardWidth = 160;
const kGap = 8;
const kHeaderHeight = 40;
const kGpusPerLine = 8;
const kOverscan = 400;
const kStep = 100;

interface Row {
  top: number;
  height: number;
  header?: string;
  nodes: Node[];
}

// In degrees Celsius: most GPUs for servers slow down between 85 and 90.
const kWarm = 60;
const kHot = 80;

const isGauge = (mode: Mode): mode is Gauge => mode === 'utilization' || mode === 'temperature';

function fill(gpu: Gpu, mode: Mode): number {
  const memory = gpu.memory > 0 ? gpu.used / gpu.memory : 0;
  if (mode === 'memory') return memory;
  return Math.min(1, Math.max(gpu.usedMilli / 1000, memory));
}

function classOfHolder([uid, , , namespace]: Held): string {
  const shown = cluster.pods.get(uid)?.namespace ?? namespace;
  return shown === undefined ? 'hidden-tenant' : `tenant${tenantColor(shown)}`;
}

// A cell whose left part has the color of `color`. Most cells are empty or full, which takes no style.
function partCell(part: number, color: string) {
  if (part <= 0) return <span class="gpu" />;
  if (part >= 1) return <span class={`gpu full ${color}`} />;
  return <span class={`gpu part ${color}`} style={{ '--part': `${part * 100}%` }} />;
}

// Slices side by side, each as wide as its share; what the console hides is the last one.
function tenantCell(gpu: Gpu) {
  const part = (milli: number, bytes: number) => Math.max(milli / 1000, gpu.memory > 0 ? bytes / gpu.memory : 0);
  const slices: [string, number][] = gpu.held.map((held) => [classOfHolder(held), part(held[1], held[2])]);
  const rest = hiddenPart(gpu);
  const hidden = part(rest.milli, rest.bytes);
  if (hidden > 0) slices.push(['hidden-tenant', hidden]);
  if (slices.length === 0) return <span class="gpu" />;
  if (slices[0]![1] >= 1) return <span class={`gpu ${slices[0]![0]}`} />;
  return (
    <span class="gpu shared">
      {slices.map(([color, width]) => (
        <span class={`slice ${color}`} style={{ width: `${Math.min(1, width) * 100}%` }} />
      ))}
    </span>
  );
}

function heatOf(degrees: number): string {
  return degrees >= kHot ? 'hot' : degrees >= kWarm ? 'warm' : 'cool';
}

// A function, not a component: a screen has more than a thousand cells.
function gpuCell(gpu: Gpu, mode: Mode, gauges?: NodeGauges) {
  if (!works(gpu)) return <span class="gpu bad">×</span>;
  if (mode === 'health') return <span class={`gpu ${gpu.state}`} />;
  if (mode === 'tenant') return tenantCell(gpu);
  if (!isGauge(mode)) return partCell(fill(gpu, mode), '');
  const value = gaugeOf(gauges, gpu, mode);
  if (value === null) return <span class="gpu unknown">?</span>;
  return partCell(value / 100, mode === 'temperature' ? heatOf(value) : '');
}

interface CardProps {
  node: Node;
  mode: Mode;
  pods: number; // version of the pods if the card shows them
  language: string;
  gauges?: NodeGauges; // if the card shows them
}

// What the card shows in a mode with values of agents, in words.
function gaugeLabel(node: Node, mode: Mode, gauges?: NodeGauges): string {
  if (!isGauge(mode)) return '';
  const values = node.gpus.map((gpu) => gaugeOf(gauges, gpu, mode)).filter((value) => value !== null);
  if (values.length === 0) return t(mode === 'utilization' ? 'utilizationUnknown' : 'temperatureUnknown');
  const highest = Math.round(Math.max(...values));
  const mean = Math.round(values.reduce((sum, value) => sum + value, 0) / values.length);
  const text = mode === 'utilization' ? t('utilizationLabel', mean, highest) : t('temperatureLabel', highest);
  return gauges!.stale ? `${text}, ${t('oldValues')}` : text;
}

// Drawn again only if what it shows has changed: at each event most cards have not.
class NodeCard extends Component<CardProps> {
  override shouldComponentUpdate(next: CardProps) {
    const now = this.props;
    return (
      next.node !== now.node ||
      next.mode !== now.mode ||
      next.pods !== now.pods ||
      next.gauges !== now.gauges ||
      next.language !== now.language
    );
  }

  render({ node, mode, gauges }: CardProps) {
    const marks = [node.ready ? '' : t('notReady'), node.cordoned ? t('cordoned') : ''].filter(Boolean);
    const { busy, gpus, bad } = node.sum;
    const measured = gaugeLabel(node, mode, gauges);
    const label = [t('nodeLabel', node.name, busy, gpus, bad), measured, ...marks, node.problem ?? ''];
    return (
      <a
        class={`card${node.ready ? '' : ' not-ready'}${node.cordoned ? ' cordoned' : ''}${node.problem ? ' problem' : ''}`}
        href={`#/node/${encodeURIComponent(node.name)}`}
        aria-label={label.filter(Boolean).join(', ')}
        data-node={node.name}
        title={measured || undefined}
      >
        <span class="card-name">{node.name}</span>
        <span class={`gpus${gauges?.stale ? ' old' : ''}`} aria-hidden="true">
          {node.gpus.map((gpu) => gpuCell(gpu, mode, gauges))}
        </span>
      </a>
    );
  }
}

function matches(node: Node, filter: string, shown: Shown): boolean {
  if (shown === 'unhealthy' && node.ready && !node.problem && node.sum.bad === 0) return false;
  if (shown === 'free' && node.sum.idle === 0) return false;
  if (shown === 'partial' && !node.gpus.some((g) => fill(g, 'allocation') > 0 && fill(g, 'allocation') < 1)) {
    return false;
  }
  if (!filter) return true;
  return node.search.includes(filter);
}

// `nodes`: in the order of their keys, so that groups are next to each other.
function rowsOf(nodes: Node[], columns: number): { rows: Row[]; height: number } {
  const rows: Row[] = [];
  let top = 0;
  for (let begin = 0, end = 0; begin < nodes.length; begin = end) {
    const { pool, model } = nodes[begin]!;
    while (end < nodes.length && nodes[end]!.pool === pool && nodes[end]!.model === model) end++;
    const group = nodes.slice(begin, end);
    const sum = addUp(group.map((node) => node.sum));
    const header = t('group', pool || t('noPool'), model || '–', group.length, sum.gpus, sum.idle);
    rows.push({ top, height: kHeaderHeight, header, nodes: [] });
    top += kHeaderHeight;
    const most = group.reduce((so_far, node) => Math.max(so_far, node.sum.gpus), 1);
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

// Why the nodes in view have no values, if none of them has.
function GaugeProblem({ names, known, failure }: { names: string[] } & ReturnType<typeof useGauges>) {
  if (failure) return <UsageFailure error={failure} />;
  const all = names.map((name) => known.get(name));
  if (all.length === 0 || !all.every((gauges) => gauges?.at === 0)) return null;
  return <p class="hint">{t('noGauges', all[0]!.error)}</p>;
}

interface RowProps {
  nodes: Node[];
  mode: Mode;
  pods: number;
  known: Map<string, NodeGauges>;
  current: boolean; // draw the changes now
}

// Cards keep their place, so that a filter changes texts and colors instead of making new cards.
class NodeRow extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps) {
    return next.current;
  }

  render({ nodes, mode, pods, known }: RowProps) {
    return nodes.map((node) => (
      <NodeCard
        node={node}
        mode={mode}
        pods={pods}
        language={currentLanguage()}
        gauges={isGauge(mode) ? known.get(node.name) : undefined}
      />
    ));
  }
}

// The last of the values of `key` that the browser has shown; '' before the first.
function useShown(key: string): string {
  const [shown, setShown] = useState('');
  useEffect(() => {
    let timer = 0;
    const frame = requestAnimationFrame(() => (timer = window.setTimeout(() => setShown(key))));
    return () => (cancelAnimationFrame(frame), clearTimeout(timer));
  }, [key]);
  return shown;
}

// Cards keep their place, so after a change another node may be where the focus is: moves it to the
// card of the node that had it.
function useFocusOfNode(list: { current: HTMLElement | null }) {
  const name = useRef('');
  useLayoutEffect(() => {
    const active = document.activeElement as HTMLElement | null;
    if (!name.current || !active?.dataset.node || active.dataset.node === name.current) return;
    const card = list.current!.querySelector<HTMLElement>(`[data-node="${CSS.escape(name.current)}"]`);
    card ? card.focus({ preventScroll: true }) : (name.current = active.dataset.node);
  });
  return (event: FocusEvent) => (name.current = (event.target as HTMLElement).closest<HTMLElement>('.card')?.dataset.node ?? '');
}

// `what`: what people have chosen to see. After a change of it, rows beyond the screen follow when
// the browser has shown those on it.
function NodeList({ nodes, mode, pods, what }: { nodes: Node[]; mode: Mode; pods: number; what: string }) {
  const list = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(1024);
  const [view, setView] = useState({ from: 0, to: 1200 });
  const columns = Math.max(1, Math.floor((width + kGap) / (kCardWidth + kGap)));
  const { rows, height } = useMemo(() => rowsOf(nodes, columns), [nodes, columns]);
  const shown = useShown(what);
  const isNear = (row: Row, beyond: number) => row.top + row.height >= view.from - beyond && row.top <= view.to + beyond;
  const names = isGauge(mode) ? rows.filter((row) => isNear(row, 0)).flatMap((row) => row.nodes.map((node) => node.name)) : [];
  const { known, failure } = useGauges(isGauge(mode), names);
  const onFocus = useFocusOfNode(list);

  useLayoutEffect(() => {
    const measure = () => {
      const box = list.current!.getBoundingClientRect();
      setWidth(box.width);
      // Steps, so that most scrolling changes nothing.
      const from = Math.floor(-box.top / kStep) * kStep;
      const to = Math.ceil((window.innerHeight - box.top) / kStep) * kStep;
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
    <>
      {isGauge(mode) && <GaugeProblem names={names} known={known} failure={failure} />}
      <div class="map" ref={list} style={{ height: `${height}px` }} onKeyDown={onArrow} onFocusIn={onFocus}>
        {rows.map((row, i) => {
          if (!isNear(row, shown ? kOverscan : 0)) return null;
          const style = { top: `${row.top}px` };
          if (row.header) {
            return (
              <h2 class="group" style={style} key={`h${i}`}>
                {row.header}
              </h2>
            );
          }
          const current = shown === what || isNear(row, 0);
          return (
            <div class="row" style={{ ...style, gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` }} key={i}>
              <NodeRow nodes={row.nodes} mode={mode} pods={pods} known={known} current={current} />
            </div>
          );
        })}
      </div>
    </>
  );
}

function tenantNames(): string[] {
  const names = new Set<string>();
  for (const pod of cluster.pods.values()) if (pod.node) names.add(pod.namespace);
  return [...names].sort();
}

const kColors: Record<Exclude<Mode, 'tenant'>, [string, Key][]> = {
  allocation: [['', 'legendFree'], ['full', 'legendFull']],
  memory: [['', 'legendFree'], ['full', 'legendFull']],
  health: [['', 'legendFree'], ['suspect', 'suspect']],
  utilization: [['', 'legendNotBusy'], ['full', 'legendBusy'], ['unknown', 'legendUnknown'], ['full old', 'oldValues']],
  temperature: [
    ['full cool', 'legendCool'],
    ['full warm', 'legendWarm'],
    ['full hot', 'legendHot'],
    ['unknown', 'legendUnknown'],
    ['full cool old', 'oldValues'],
  ],
};

function LegendEntry({ color, name }: { color: string; name: string }) {
  const sign = color === 'bad' ? '×' : color === 'unknown' ? '?' : '';
  return (
    <li>
      <span class={`gpu ${color}`} aria-hidden="true">
        {sign}
      </span>{' '}
      {name}
    </li>
  );
}

// `all`: changes with the cluster.
function Legend({ mode, all }: { mode: Mode; all: Node[] }) {
  const tenants = useMemo(() => (mode === 'tenant' ? tenantNames().slice(0, 12) : []), [mode, all]);
  const colors: [string, string][] =
    mode === 'tenant'
      ? [
          ['', t('legendFree')],
          ...tenants.map((name): [string, string] => [`tenant${tenantColor(name)}`, name]),
          ['hidden-tenant', t('legendHidden')],
        ]
      : kColors[mode].map(([color, key]) => [color, t(key, kWarm, kHot)]);
  return (
    <ul class="legend">
      {[...colors, ['bad', t('legendBad')] as const].map(([color, name]) => (
        <LegendEntry key={`${color} ${name}`} color={color} name={name} />
      ))}
    </ul>
  );
}

function Summary({ nodes }: { nodes: Node[] }) {
  const sum = useMemo(() => addUp(nodes.map((node) => node.sum)), [nodes]);
  const waiting = useMemo(() => [...cluster.pods.values()].filter((pod) => pod.state === 'waiting').length, [nodes]);
  return (
    <ul class="summary" aria-busy={!cluster.complete}>
      <li>{t('nodesCount', nodes.length)}</li>
      <li>{t('gpusCount', sum.gpus)}</li>
      <li>
        {t('compute')} {gpuText(sum.milli)}/{sum.gpus}
      </li>
      <li>
        {t('memory')} {memoryText(sum.used)}/{memoryText(sum.memory)}
      </li>
      <li>{t('idleCount', sum.idle)}</li>
      <li class={sum.bad > 0 ? 'alarm' : ''}>{t('unhealthyCount', sum.bad)}</li>
      <li>{t('waitingCount', waiting)}</li>
      {!cluster.complete && <li>{t('loading')}</li>}
    </ul>
  );
}

// Changes with the pods if cards in this mode show them.
function podVersion(mode: Mode): number {
  return mode === 'tenant' ? cluster.version * 1e6 + cluster.pods.size : 0;
}

const kModes: [Mode, Key][] = [
  ['allocation', 'byAllocation'],
  ['memory', 'byMemory'],
  ['tenant', 'byTenant'],
  ['health', 'byHealth'],
  ['utilization', 'utilization'],
  ['temperature', 'temperature'],
];
const kShown: [Shown, Key][] = [
  ['all', 'showAll'],
  ['unhealthy', 'showUnhealthy'],
  ['free', 'showFree'],
  ['partial', 'showPartial'],
];

export function MapPage() {
  const { mayListNodes } = useCluster();
  const [mode, setMode] = useState<Mode>('allocation');
  const [shown, setShown] = useState<Shown>('all');
  const [filter, setFilter] = useState('');
  const all = sortedNodes();
  const visible = useMemo(() => all.filter((node) => matches(node, filter, shown)), [all, filter, shown]);
  useEffect(() => window.scrollTo(0, 0), [shown]);
  if (!mayListNodes) return <Empty page title={t('forbiddenNodes')} hint={t('forbiddenNodesHint')} />;
  if (all.length === 0) return <Empty page title={t('emptyMap')} hint={t('emptyMapHint')} />;
  return (
    <>
      <h1 class="unseen">{t('map')}</h1>
      <Summary nodes={all} />
      <div class="tools">
        <Filter placeholder={t('filterNodes')} onChange={setFilter} />
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
        <Legend mode={mode} all={all} />
        <a href="#/add-node">{t('addNode')}</a>
      </div>
      {visible.length === 0 ? <Empty title={t('noMatch')} /> : (
        <NodeList nodes={visible} mode={mode} pods={podVersion(mode)} what={`${mode} ${shown} ${filter}`} />
      )}
    </>
  );
}
