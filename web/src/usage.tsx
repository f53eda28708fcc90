// SPDX-License-Identifier: Apache-2.0
// The use of a node's GPUs, and the part that each container uses. The page reads both every two seconds while it
// is visible, and keeps the last five minutes.
import { useEffect, useState } from 'preact/hooks';
import { gpuText, memoryText } from './format';
import { HistorySection } from './history';
import { t } from './i18n';
import { Empty, Table, UsageFailure } from './parts';
import { api, hasHistory, type Gpu, type Node } from './store';

const kReadIntervalMs = 2000;
const kMaxSamples = 150; // of five minutes

interface Gauges {
  utilization?: number;
  temperature?: number;
  power?: number;
}

// A container's use of a GPU, as the agent reports it. If `limited` is false, only the granted amounts are known.
interface Use {
  namespace: string;
  pod: string;
  container: string;
  uuid: string;
  milli: number;
  memory: { granted: number; limit?: number; used?: number; peak?: number };
  limited: boolean;
  used_milli?: number;
  limit_milli?: number;
  waiting_milli?: number;
  refused?: number;
  without_limiter?: number;
}

interface Sample {
  gpus?: Record<string, Gauges>;
  containers?: Use[];
  complete?: boolean;
}

const keyOf = (use: Use) => `${use.namespace}/${use.pod}/${use.container}/${use.uuid}`;

// The newest sample, and for each GPU and container the parts of a GPU's compute that it used.
interface RecentUse {
  sample?: Sample;
  error?: Error;
  series: Map<string, number[]>;
}

function append(history: RecentUse, sample: Sample): RecentUse {
  const series = new Map<string, number[]>();
  const add = (key: string, value: number | undefined) => {
    if (value !== undefined) series.set(key, [...(history.series.get(key) ?? []), value].slice(-kMaxSamples));
  };
  for (const [uuid, gauges] of Object.entries(sample.gpus ?? {})) {
    add(uuid, gauges.utilization === undefined ? undefined : gauges.utilization / 100);
  }
  for (const use of sample.containers ?? []) {
    add(keyOf(use), use.used_milli === undefined ? undefined : use.used_milli / 1000);
  }
  return { sample, series };
}

function useRecentUse(name: string): RecentUse {
  const [history, setHistory] = useState<RecentUse>({ series: new Map() });
  useEffect(() => {
    let timer = 0;
    let current = true;
    const read = async () => {
      if (!document.hidden) {
        try {
          const sample = await api<Sample>(`/api/v1/nodes/${encodeURIComponent(name)}/usage`);
          if (current) setHistory((before) => append(before, sample));
        } catch (error) {
          if (current) setHistory((before) => ({ ...before, error: error as Error }));
        }
      }
      if (current) timer = window.setTimeout(read, kReadIntervalMs);
    };
    setHistory({ series: new Map() });
    void read();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [name]);
  return history;
}

// `parts` between 0 and 1, the newest at the right; `limit` is drawn as a line.
function Sparkline({ parts, limit, label }: { parts: number[]; limit?: number; label: string }) {
  const x = (i: number) => kMaxSamples - parts.length + i + 1;
  const y = (part: number) => 30 - 28 * Math.min(1, part);
  const points = parts.map((part, i) => `${x(i)},${y(part)}`);
  return (
    <span class="bar-cell">
      <svg class="sparkline" viewBox={`0 0 ${kMaxSamples} 31`} preserveAspectRatio="none" aria-hidden="true">
        {points.length > 0 && <polygon points={`${x(0)},30 ${points.join(' ')} ${x(parts.length - 1)},30`} />}
        {limit !== undefined && <line x1="0" x2={kMaxSamples} y1={y(limit)} y2={y(limit)} />}
      </svg>
      {label}
    </span>
  );
}

const unit = (value: number | undefined, name: string) => (value === undefined ? '–' : `${Math.round(value)} ${name}`);

function GpuUse({ gpus, history }: { gpus: Gpu[]; history: RecentUse }) {
  return (
    <Table
      label={t('utilization')}
      class="gpu-use"
      columns={[t('gpu'), t('utilization'), t('temperature'), t('power')]}
    >
      {gpus.map((gpu) => {
        const gauges = history.sample?.gpus?.[gpu.uuid] ?? {};
        return (
          <tr key={gpu.uuid}>
            <th scope="row">{gpu.name}</th>
            <td>
              {gpu.slice ? (
                t('sliceUtilization')
              ) : (
                <Sparkline parts={history.series.get(gpu.uuid) ?? []} label={unit(gauges.utilization, '%')} />
              )}
            </td>
            <td>{unit(gauges.temperature, '°C')}</td>
            <td>{unit(gauges.power, 'W')}</td>
          </tr>
        );
      })}
    </Table>
  );
}

function marksOf(use: Use): string {
  const marks = [];
  if (!use.limited) marks.push(t('notLimited'));
  if (use.without_limiter) marks.push(t('withoutLimiter', use.without_limiter));
  if (use.refused) marks.push(t('refused', use.refused));
  return marks.join(', ');
}

function ContainerRow({ use, gpu, history }: { use: Use; gpu?: Gpu; history: RecentUse }) {
  const { used, limit, peak, granted } = use.memory;
  const compute = use.used_milli === undefined ? gpuText(use.milli) : `${gpuText(use.used_milli)}/${gpuText(use.limit_milli ?? use.milli)}`;
  return (
    <tr>
      <th scope="row">
        <a href={`#/workload/${encodeURIComponent(use.namespace)}/${encodeURIComponent(use.pod)}`}>
          {use.namespace}/{use.pod}
        </a>{' '}
        {use.container}
      </th>
      <td>{gpu?.name ?? use.uuid}</td>
      <td>
        <Sparkline
          parts={history.series.get(keyOf(use)) ?? []}
          limit={(use.limit_milli ?? use.milli) / 1000}
          label={compute}
        />
      </td>
      <td>{use.waiting_milli === undefined ? '–' : `${Math.round(use.waiting_milli / 10)} %`}</td>
      <td>{used === undefined ? memoryText(granted) : `${memoryText(used)}/${memoryText(limit ?? granted)}`}</td>
      <td>{peak === undefined ? '–' : memoryText(peak)}</td>
      <td class="alarm">{marksOf(use)}</td>
    </tr>
  );
}

function ContainerUse({ node, history }: { node: Node; history: RecentUse }) {
  const uses = history.sample?.containers ?? [];
  if (uses.length === 0) return <p class="hint">{t('noShares')}</p>;
  return (
    <Table
      label={t('containers')}
      class="container-use"
      columns={[t('container'), t('gpu'), t('compute'), t('waitingTime'), t('memory'), t('peak'), t('problem')]}
    >
      {uses.map((use) => (
        <ContainerRow key={keyOf(use)} use={use} gpu={node.gpus.find((gpu) => gpu.uuid === use.uuid)} history={history} />
      ))}
    </Table>
  );
}

export function Usage({ node }: { node: Node }) {
  const history = useRecentUse(node.name);
  return (
    <>
      <h2>{t('useNow')}</h2>
      <p class="hint">{t('useHint')}</p>
      {history.error && <UsageFailure error={history.error} />}
      {!history.sample && !history.error && <Empty title={t('loadingUse')} />}
      {history.sample && (
        <>
          <GpuUse gpus={node.gpus} history={history} />
          <h3>{t('containers')}</h3>
          {history.sample.complete === false && <p class="hint">{t('incomplete')}</p>}
          <ContainerUse node={node} history={history} />
        </>
      )}
      {hasHistory() && <HistorySection node={node} />}
    </>
  );
}
