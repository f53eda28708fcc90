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
const kOverscan = 600;

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

// Slices side by side, each as wide as its share; what the console hides is the last one.
function TenantSlices({ gpu }: { gpu: Gpu }) {
  const part = (milli: number, bytes: number) => Math.max(milli / 1000, gpu.memory > 0 ? bytes / gpu.memory : 0);
  const rest = hiddenPart(gpu);
  const hidden = part(rest.milli, rest.bytes);
  return (
    <>
      {gpu.held.map((held) => (
        <span class={`slice ${classOfHolder(held)}`} style={{ width: `${Math.min(1, part(held[1], held[2])) * 100}%` }} />
      ))}
      {hidden > 0 && <span class="slice hidden-tenant" style={{ width: `${Math.min(1, hidden) * 100}%` }} />}
    </>
  );
}

function heatOf(degrees: number): string {
  return degrees >= kHot ? 'hot' : degrees >= kWarm ? 'warm' : 'cool';
}

function GaugeCell({ value, gauge }: { value: number | null; gauge: Gauge }) {
  if (value === null) return <span class="gpu unknown">?</span>;
  return (
    <span class="gpu">
      <span
        class={`slice ${gauge === 'temperature' ? heatOf(value) : 'used'}`}
        style={{ width: `${Math.max(0, Math.min(100, value))}%` }}
      />
    </span>
  );
}

function GpuCell({ gpu, mode, gauges }: { gpu: Gpu; mode: Mode; gauges?: NodeGauges }) {
  if (!works(gpu)) return <span class="gpu bad">×</span>;
  if (isGauge(mode)) return <GaugeCell value={gaugeOf(gauges, gpu, mode)} gauge={mode} />;
  if (mode === 'health') return <span class={`gpu ${gpu.state}`} />;
  return (
    <span class="gpu">
      {mode === 'tenant' ? (
        <TenantSlices gpu={gpu} />
      ) : (
        <span class="slice used" style={{ width: `${fill(gpu, mode) * 100}%` }} />
      )}
    </span>
  );
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
          {node.gpus.map((gpu) => (
            <GpuCell key={gpu.uuid} gpu={gpu} mode={mode} gauges={gauges} />
          ))}
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

function NodeList({ nodes, mode, pods }: { nodes: Node[]; mode: Mode; pods: number }) {
  const list = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(1024);
  const [view, setView] = useState({ from: 0, to: 1200 });
  const columns = Math.max(1, Math.floor((width + kGap) / (kCardWidth + kGap)));
  const { rows, height } = useMemo(() => rowsOf(nodes, columns), [nodes, columns]);

  const isInView = (row: Row) => row.top + row.height > view.from + kOverscan && row.top < view.to - kOverscan;
  const names = isGauge(mode) ? rows.filter(isInView).flatMap((row) => row.nodes.map((node) => node.name)) : [];
  const { known, failure } = useGauges(isGauge(mode), names);

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
    <>
      {isGauge(mode) && <GaugeProblem names={names} known={known} failure={failure} />}
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
                <NodeCard
                  key={node.name}
                  node={node}
                  mode={mode}
                  pods={pods}
                  language={currentLanguage()}
                  gauges={isGauge(mode) ? known.get(node.name) : undefined}
                />
              ))}
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
    ['cool', 'legendCool'],
    ['warm', 'legendWarm'],
    ['hot', 'legendHot'],
    ['unknown', 'legendUnknown'],
    ['cool old', 'oldValues'],
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

function Legend({ mode }: { mode: Mode }) {
  const colors: [string, string][] =
    mode === 'tenant'
      ? [
          ['', t('legendFree')],
          ...tenantNames().slice(0, 12).map((name): [string, string] => [`tenant${tenantColor(name)}`, name]),
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
  const sum = addUp(nodes.map((node) => node.sum));
  let waiting = 0;
  for (const pod of cluster.pods.values()) if (pod.state === 'waiting') waiting++;
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
        <Legend mode={mode} />
        <a href="#/add-node">{t('addNode')}</a>
      </div>
      {visible.length === 0 ? <Empty title={t('noMatch')} /> : <NodeList nodes={visible} mode={mode} pods={podVersion(mode)} />}
    </>
  );
}
