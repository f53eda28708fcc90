// SPDX-License-Identifier: Apache-2.0
// Curves of a node and its GPUs over hours, from Prometheus.
import { useState } from 'preact/hooks';
import { memoryText } from './format';
import { currentLanguage, t, type Key } from './i18n';
import { Empty, Scroll, UsageFailure, useLoaded } from './parts';
import { api, type Node } from './store';

type Field = 'utilization' | 'memory' | 'temperature' | 'power';
type Curve = (number | null)[];

interface History {
  start: number;
  step: number;
  gpus: Record<string, Partial<Record<Field, Curve>>>;
}

const kHours = [1, 6, 24, 168];
const kHeight = 40;

const number = (unit: string) => (value: number) => `${Math.round(value)} ${unit}`;
const kFields: Record<Field, { name: Key; text: (value: number) => string; summed: boolean }> = {
  utilization: { name: 'utilization', text: number('%'), summed: false },
  memory: { name: 'memory', text: (mib) => memoryText(mib * 2 ** 20), summed: true },
  temperature: { name: 'temperature', text: number('°C'), summed: false },
  power: { name: 'power', text: number('W'), summed: true },
};

const knownValues = (curve: Curve) => curve.filter((value) => value !== null);

// The curve of a node: the sum of its GPUs' values if `summed`, else their mean.
function curveOfNode(curves: Curve[], summed: boolean): Curve {
  return (curves[0] ?? []).map((_, i) => {
    const values = knownValues(curves.map((curve) => curve[i] ?? null));
    if (values.length === 0) return null;
    const sum = values.reduce((a, b) => a + b, 0);
    return summed ? sum : sum / values.length;
  });
}

// A line for each run of known values. Where Prometheus has no value there is a gap.
function Line({ curve, maximum }: { curve: Curve; maximum: number }) {
  const runs: string[][] = [[]];
  curve.forEach((value, i) => {
    if (value === null) runs.push([]);
    else runs[runs.length - 1]!.push(`${i},${(kHeight - 1 - (kHeight - 2) * Math.min(1, value / maximum)).toFixed(1)}`);
  });
  return (
    <svg class="curve" viewBox={`0 0 ${curve.length} ${kHeight}`} preserveAspectRatio="none" aria-hidden="true">
      {runs
        .filter((run) => run.length > 0)
        .map((run) => (
          <polyline points={(run.length > 1 ? run : [...run, ...run]).join(' ')} />
        ))}
    </svg>
  );
}

function CurveRow({ name, curve, maximum, field }: { name: string; curve: Curve; maximum: number; field: Field }) {
  const values = knownValues(curve);
  const { text } = kFields[field];
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return (
    <tr>
      <th scope="row">{name}</th>
      <td class="curve-cell">
        <Line curve={curve} maximum={maximum} />
      </td>
      <td class="number">{values.length > 0 ? text(mean) : '–'}</td>
      <td class="number">{values.length > 0 ? text(Math.max(...values)) : '–'}</td>
    </tr>
  );
}

function Curves({ node, history, field }: { node: Node; history: History; field: Field }) {
  const { summed, name } = kFields[field];
  const curves = node.gpus.flatMap((gpu) => {
    const curve = history.gpus[gpu.uuid]?.[field];
    return curve ? [{ gpu, curve }] : [];
  });
  if (curves.length === 0) return <Empty title={t('noCurves')} />;
  const nodeCurve = curveOfNode(
    curves.map(({ curve }) => curve),
    summed,
  );
  const maximumOf = (curve: Curve) => Math.max(1, ...knownValues(curve));
  const maximum = field === 'utilization' ? 100 : Math.max(...curves.map(({ curve }) => maximumOf(curve)));
  const time = (seconds: number) =>
    new Date(seconds * 1000).toLocaleString(currentLanguage(), { dateStyle: 'short', timeStyle: 'short' });
  return (
    <Scroll label={t(name)}>
      <table class="curves">
        <thead>
          <tr>
            <th scope="col">{t('gpu')}</th>
            <th scope="col">
              {t(name)}, {time(history.start)} – {time(history.start + history.step * (nodeCurve.length - 1))}
            </th>
            <th scope="col">{t('mean')}</th>
            <th scope="col">{t('highest')}</th>
          </tr>
        </thead>
        <tbody>
          <CurveRow name={t(summed ? 'nodeSum' : 'nodeMean')} curve={nodeCurve} maximum={summed ? maximumOf(nodeCurve) : maximum} field={field} />
          {curves.map(({ gpu, curve }) => (
            <CurveRow key={gpu.uuid} name={gpu.name} curve={curve} maximum={maximum} field={field} />
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

export function HistorySection({ node }: { node: Node }) {
  const [hours, setHours] = useState(6);
  const [field, setField] = useState<Field>('utilization');
  const loaded = useLoaded(`${node.name} ${hours}`, () =>
    api<History>(`/api/v1/nodes/${encodeURIComponent(node.name)}/history?hours=${hours}`),
  );
  return (
    <section aria-labelledby="history">
      <h2 id="history">{t('history')}</h2>
      <div class="tools">
        <label>
          {t('range')}
          <select value={hours} onChange={(e) => setHours(Number(e.currentTarget.value))}>
            {kHours.map((value) => (
              <option value={value}>{value < 168 ? t('hoursRange', value) : t('daysRange', value / 24)}</option>
            ))}
          </select>
        </label>
        <label>
          {t('curve')}
          <select value={field} onChange={(e) => setField(e.currentTarget.value as Field)}>
            {Object.entries(kFields).map(([value, { name }]) => (
              <option value={value}>{t(name)}</option>
            ))}
          </select>
        </label>
      </div>
      {loaded.failure && <UsageFailure error={loaded.failure} />}
      {!loaded.data && !loaded.error && <Empty title={t('loading')} />}
      {loaded.data && <Curves node={node} history={loaded.data} field={field} />}
    </section>
  );
}
