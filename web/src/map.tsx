// SPDX-License-Identifier: Apache-2.0
// All nodes with their GPUs, grouped by pool and model. The document has elements only for the visible nodes, so
// thousands of nodes cost as much as one screen of nodes.
import { Component } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Cell, Cells, cellsHeight, fillingOfTenant, isGauge, kBroken, kHidden, kHot, kUnknown, kUnmeasured, kWarm, Stripes, type CellsProps, type Filling, type Mode } from './cells';
import { gpuText, memoryText } from './format';
import { gaugeOf, useGauges, type Gauge, type NodeGauges } from './gauges';
import { currentLanguage, t, type Key } from './i18n';
import { Empty, Filter, UsageFailure, useAfterFrame, useSteadyFocus } from './parts';
import { addUp, cluster, podVersion, sortedNodes, useCluster, type Node } from './store';

type Shown = 'all' | 'unhealthy' | 'free' | 'partial';

// In pixels.
const kCardWidth = 160;
const kCardHeight = 32; // without cells
const kGap = 8;
const kRowGap = 22;
const kHeaderHeight = 40;
const kOverscan = 100;
const kScrollStep = 100;

const kBlockRows = 2;

// Up to kBlockRows rows of cards, or the title of a group.
interface NodeBlock {
  index: number;
  top: number;
  height: number;
  card: number; // height of a card
  header?: string;
  nodes: Node[];
}

const kUnmeasuredOf: Record<Gauge, Key> = { utilization: 'sliceUtilization', temperature: 'sliceTemperature' };

// The measured values of a node in words, for the label of its card.
function gaugeLabel(node: Node, gauge: Gauge, gauges?: NodeGauges): string {
  const slices = node.sliced ? t(kUnmeasuredOf[gauge]) : '';
  const gpus = node.gpus.filter((gpu) => !gpu.slice);
  if (gpus.length === 0 && slices) return slices;
  const values = gpus.map((gpu) => gaugeOf(gauges, gpu, gauge)).filter((value) => value !== null);
  if (values.length === 0) return t(gauge === 'utilization' ? 'utilizationUnknown' : 'temperatureUnknown');
  const highest = Math.round(Math.max(...values));
  const mean = Math.round(values.reduce((sum, value) => sum + value, 0) / values.length);
  const text = gauge === 'utilization' ? t('utilizationLabel', mean, highest) : t('temperatureLabel', highest);
  return [text, gauges!.stale && t('oldValues'), slices].filter(Boolean).join(', ');
}

// `measured`: the measured values in words, or empty. Cells draws the cells of the node's GPUs.
function NodeCard({ node, measured }: { node: Node; measured: string }) {
  const mig = node.mig ? t('migGpus', node.mig.length) : '';
  const marks = [node.ready ? '' : t('notReady'), node.cordoned ? t('cordoned') : '', mig].filter(Boolean);
  const { busy, gpus, bad } = node.sum;
  const label = [t('nodeLabel', node.name, busy, gpus, bad), measured, ...marks, node.problem ?? ''];
  return (
    <a
      class={`card${node.ready ? '' : ' not-ready'}${node.cordoned ? ' cordoned' : ''}${node.problem ? ' problem' : ''}`}
      href={`#/node/${encodeURIComponent(node.name)}`}
      aria-label={label.filter(Boolean).join(', ')}
      data-node={node.name}
      data-mark={[node.cordoned && t('cordoned'), node.mig && 'MIG'].filter(Boolean).join(', ') || undefined}
      title={[measured, mig].filter(Boolean).join(', ') || undefined}
    >
      {node.name}
    </a>
  );
}

function matches(node: Node, filter: string, shown: Shown): boolean {
  if (shown === 'unhealthy' && node.ready && !node.problem && node.sum.bad === 0) return false;
  if (shown === 'free' && node.sum.idle === 0) return false;
  if (shown === 'partial' && node.sum.partial === 0) return false;
  if (!filter) return true;
  return node.search.includes(filter);
}

// `nodes`: in the order of their keys, so that groups are next to each other.
function blocksOf(nodes: Node[], columns: number): { blocks: NodeBlock[]; height: number } {
  const blocks: NodeBlock[] = [];
  let top = 0;
  for (let begin = 0, end = 0; begin < nodes.length; begin = end) {
    const { pool, model } = nodes[begin]!;
    while (end < nodes.length && nodes[end]!.pool === pool && nodes[end]!.model === model) end++;
    const group = nodes.slice(begin, end);
    const sum = addUp(group.map((node) => node.sum));
    const header = t('group', pool ? `${pool} · ${model || '–'}` : model || t('noModel'), group.length, sum.gpus, sum.idle);
    blocks.push({ index: blocks.length, top, height: kHeaderHeight, card: 0, header, nodes: [] });
    top += kHeaderHeight;
    const most = group.reduce((so_far, node) => Math.max(so_far, node.sum.gpus), 1);
    const card = kCardHeight + cellsHeight(most);
    for (let i = 0; i < group.length; i += columns * kBlockRows) {
      const part = group.slice(i, i + columns * kBlockRows);
      const height = Math.ceil(part.length / columns) * (card + kRowGap);
      blocks.push({ index: blocks.length, top, height, card, nodes: part });
      top += height;
    }
  }
  return { blocks, height: top };
}

const cardsOf = (element: Element) => [...element.querySelectorAll<HTMLElement>('.card')];

// The nearest card above or below `card` in the same column. `step`: 1 for down, -1 for up.
function cardBeyond(card: HTMLElement, step: number): HTMLElement | null {
  const block = card.parentElement!;
  const columns = Number(block.dataset.columns);
  const place = [...block.children].indexOf(card);
  const beside = cardsOf(block)[place + step * columns];
  if (beside) return beside;
  const next = (one: Element) => (step > 0 ? one.nextElementSibling : one.previousElementSibling);
  for (let other = next(block); other; other = next(other)) {
    const column = cardsOf(other).filter((_, i) => i % columns === place % columns);
    if (column.length > 0) return step > 0 ? column[0]! : column[column.length - 1]!;
  }
  return null;
}

// Moves the focus between cards with the arrow keys.
function onArrow(event: KeyboardEvent) {
  const card = (event.target as HTMLElement).closest<HTMLElement>('.card');
  const side = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const line = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!card || (!side && !line)) return;
  const cards = cardsOf(card.closest('.map')!);
  const next = line ? cardBeyond(card, line) : cards[cards.indexOf(card) + side!];
  if (!next) return;
  event.preventDefault();
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: 'nearest' });
}

// Says why the nodes in view have no values, if none of these nodes has values.
function GaugeProblem({ names, known, failure }: { names: string[] } & ReturnType<typeof useGauges>) {
  if (failure) return <UsageFailure error={failure} />;
  const all = names.map((name) => known.get(name));
  if (all.length === 0 || !all.every((gauges) => gauges?.at === 0)) return null;
  return <p class="hint">{t('noGauges', all[0]!.error)}</p>;
}

const isSame = (a: unknown, b: unknown): boolean =>
  a === b || (Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, i) => item === b[i]));

// Rendered again only if a property, or an item of a list in a property, has changed. Most events change few of them.
abstract class Steady<Props extends object> extends Component<Props> {
  override shouldComponentUpdate(next: Props) {
    return (Object.keys(next) as (keyof Props)[]).some((key) => !isSame(next[key], this.props[key]));
  }
}

interface NodeCardsProps {
  nodes: Node[];
  gauge?: Gauge; // present if the map shows a gauge
  gauges: (NodeGauges | undefined)[]; // of each node
  language: string;
}

// Elements of cards are reused, so a filter changes texts instead of making new elements.
class Cards extends Steady<NodeCardsProps> {
  render({ nodes, gauge, gauges }: NodeCardsProps) {
    return nodes.map((node, i) => <NodeCard node={node} measured={gauge ? gaugeLabel(node, gauge, gauges[i]) : ''} />);
  }
}

interface BlockProps extends CellsProps {
  pods: number; // version of the pods, if the cells show pods
  language: string;
}

class Block extends Steady<BlockProps> {
  render({ language, ...cells }: BlockProps) {
    const { nodes, gauges, mode } = cells;
    return (
      <>
        <Cards nodes={nodes} gauge={isGauge(mode) ? mode : undefined} gauges={gauges} language={language} />
        <Cells {...cells} />
      </>
    );
  }
}

const kNoGauges: undefined[] = [];

function NodeList({ nodes, mode }: { nodes: Node[]; mode: Mode }) {
  const list = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [view, setView] = useState({ from: 0, to: 0 });
  const columns = Math.max(1, Math.floor((width + kGap) / (kCardWidth + kGap)));
  // The first rendering only measures the width. It is about as high as the second, so that the scroll bar is there
  // already.
  const { blocks, height } = useMemo(
    () => (width > 0 ? blocksOf(nodes, columns) : { blocks: [], height: nodes.length * kCardHeight }),
    [nodes, width > 0, columns, currentLanguage()],
  );
  const isNear = (top: number, bottom: number, beyond: number) => bottom >= view.from - beyond && top <= view.to + beyond;
  const inView = ({ nodes, top, card }: NodeBlock) =>
    nodes.filter((_, i) => {
      const above = top + Math.floor(i / columns) * (card + kRowGap);
      return isNear(above, above + card, 0);
    });
  const visible = blocks.filter(({ top, height }) => isNear(top, top + height, 0));
  const names = isGauge(mode) ? visible.flatMap(inView).map((node) => node.name) : [];
  const { known, failure } = useGauges(isGauge(mode), names);
  const onFocus = useSteadyFocus(list, 'node');

  useLayoutEffect(() => {
    const measure = () => {
      const box = list.current!.getBoundingClientRect();
      setWidth(box.width);
      // Rounded to steps, so that most scrolling changes nothing.
      const from = Math.floor(-box.top / kScrollStep) * kScrollStep;
      const to = Math.ceil((window.innerHeight - box.top) / kScrollStep) * kScrollStep;
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

  const draw = ({ index, top, height, card, header, nodes }: NodeBlock) => {
    if (!isNear(top, top + height, kOverscan)) return null;
    if (header) {
      return (
        <h2 class="group" style={{ top: `${top}px` }} key={`h${index}`}>
          {header}
        </h2>
      );
    }
    const style = {
      top: `${top}px`,
      gridAutoRows: `${card}px`,
      gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))`,
    };
    return (
      <div class="block" style={style} data-columns={columns} key={index}>
        <Block
          nodes={nodes}
          gauges={isGauge(mode) ? nodes.map((node) => known.get(node.name)) : kNoGauges}
          mode={mode}
          columns={columns}
          across={(width + kGap) / columns}
          down={card + kRowGap}
          pods={mode === 'tenant' ? podVersion() : 0}
          language={currentLanguage()}
        />
      </div>
    );
  };
  return (
    <>
      {isGauge(mode) && <GaugeProblem names={names} known={known} failure={failure} />}
      <div class="map" ref={list} style={{ height: `${height}px` }} onKeyDown={onArrow} onFocusIn={onFocus}>
        {blocks.map(draw)}
      </div>
    </>
  );
}

function tenantNames(): string[] {
  const names = new Set<string>();
  for (const pod of cluster.pods.values()) if (pod.node) names.add(pod.namespace);
  return [...names].sort();
}

type LegendEntry = [filling: Filling, key: Key, old?: boolean];
const kByUse: LegendEntry[] = [['free', 'legendFree'], ['used', 'legendFull']];
const kLegends: Record<Exclude<Mode, 'tenant'>, LegendEntry[]> = {
  allocation: kByUse,
  memory: kByUse,
  health: [['good', 'healthy'], ['warn', 'suspect']],
  utilization: [['free', 'legendNotBusy'], ['used', 'legendBusy'], [kUnknown, 'legendUnknown'], ['used', 'oldValues', true]],
  temperature: [
    ['good', 'legendCool'],
    ['warn', 'legendWarm'],
    ['bad', 'legendHot'],
    [kUnknown, 'legendUnknown'],
    ['good', 'oldValues', true],
  ],
};

function Legend({ nodes, mode }: { nodes: Node[]; mode: Mode }) {
  const sliced = useMemo(() => isGauge(mode) && nodes.some((node) => node.sliced), [nodes, mode]);
  const tenants = useMemo(() => (mode === 'tenant' ? tenantNames().slice(0, 12) : []), [mode, podVersion()]);
  const entries: [Filling, string, boolean?][] =
    mode === 'tenant'
      ? [
          ['free', t('legendFree')],
          ...tenants.map((name): [Filling, string] => [fillingOfTenant(name), name]),
          [kHidden, t('legendHidden')],
        ]
      : kLegends[mode].map(([filling, key, old]) => [filling, t(key, kWarm, kHot), old]);
  if (isGauge(mode) && sliced) entries.push([kUnmeasured, t(kUnmeasuredOf[mode])]);
  return (
    <ul class="legend">
      {[...entries, [kBroken, t('legendBad')] as const].map(([filling, name, old]) => (
        <li key={name}>
          <Cell filling={filling} old={old} /> {name}
        </li>
      ))}
    </ul>
  );
}

function Summary({ nodes }: { nodes: Node[] }) {
  const sum = useMemo(() => addUp(nodes.map((node) => node.sum)), [nodes]);
  const waiting = useMemo(() => [...cluster.pods.values()].filter((pod) => pod.state === 'waiting').length, [podVersion()]);
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
      <li>{t('partialCount', sum.partial)}</li>
      <li class={sum.bad > 0 ? 'alarm' : ''}>{t('unhealthyCount', sum.bad)}</li>
      <li>{t('waitingCount', waiting)}</li>
      {!cluster.complete && <li>{t('loading')}</li>}
    </ul>
  );
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
  const [chosen, setMode] = useState<Mode>('allocation');
  // The list shows the choice before the map is drawn again.
  const mode = useAfterFrame(chosen);
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
      <Stripes />
      <Summary nodes={all} />
      <div class="tools">
        <Filter placeholder={t('filterNodes')} onChange={setFilter} />
        <label>
          {t('colorBy')}
          <select value={chosen} onChange={(e) => setMode(e.currentTarget.value as Mode)}>
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
        <Legend nodes={all} mode={mode} />
        <a href="#/add-node">{t('addNode')}</a>
      </div>
      {visible.length === 0 ? <Empty title={t('noMatch')} /> : (
        <NodeList nodes={visible} mode={mode} />
      )}
    </>
  );
}
