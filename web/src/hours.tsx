// SPDX-License-Identifier: Apache-2.0
// GPU-hours since the console started: allocated, used and idle, by namespace or by a label.
import { useState } from 'preact/hooks';
import { csvOf, download } from './format';
import { currentLanguage, t } from './i18n';
import { Bar, Empty, Scroll, useLoaded } from './parts';
import { api } from './store';

interface Row {
  namespace: string;
  value: string;
  allocated: number;
  measured: number;
  idle: number;
}

interface Usage {
  since: number;
  label: string;
  rows: Row[];
  problem?: string;
}

// One row for each namespace: the sum of its rows.
function byNamespace(rows: Row[]): Row[] {
  const sums = new Map<string, Row>();
  for (const row of rows) {
    const sum = sums.get(row.namespace) ?? { namespace: row.namespace, value: '', allocated: 0, measured: 0, idle: 0 };
    sum.allocated += row.allocated;
    sum.measured += row.measured;
    sum.idle += row.idle;
    sums.set(row.namespace, sum);
  }
  return [...sums.values()];
}

// Undefined if no agent has measured the GPUs of the row.
function idleShare(row: Row): number | undefined {
  return row.measured > 0 ? row.idle / row.measured : undefined;
}

function usedHours(row: Row): number | undefined {
  const share = idleShare(row);
  return share === undefined ? undefined : row.allocated * (1 - share);
}

const hours = (value: number | undefined) => (value === undefined ? '–' : value.toFixed(2));

function save(rows: Row[], label: string) {
  const number = (value: number | undefined) => (value === undefined ? '' : Number(value.toFixed(4)));
  download(
    'gpu-hours.csv',
    csvOf(
      ['namespace', label, 'allocated_gpu_hours', 'used_gpu_hours', 'idle_share'],
      rows.map((row) => [row.namespace, row.value, number(row.allocated), number(usedHours(row)), number(idleShare(row))]),
    ),
  );
}

function HoursTable({ rows, label }: { rows: Row[]; label?: string }) {
  return (
    <Scroll label={t('gpuHours')}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t('namespace')}</th>
            {label && <th scope="col">{label}</th>}
            <th scope="col">{t('allocatedHours')}</th>
            <th scope="col">{t('usedHours')}</th>
            <th scope="col">{t('idleShare')}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const idle = idleShare(row);
            return (
              <tr key={`${row.namespace}/${row.value}`}>
                <th scope="row">{row.namespace || t('otherRows')}</th>
                {label && <td>{row.value || '–'}</td>}
                <td class="number">{hours(row.allocated)}</td>
                <td class="number">{hours(usedHours(row))}</td>
                <td>{idle === undefined ? '–' : <Bar part={idle} label={`${(idle * 100).toFixed(0)} %`} />}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

export function Hours() {
  const [reloads, setReloads] = useState(0);
  const [labels, setLabels] = useState(false);
  const loaded = useLoaded(String(reloads), () => api<Usage>('/api/v1/usage'));
  if (loaded.error) return <p class="hint">{loaded.error}</p>;
  if (!loaded.data) return <Empty title={t('loading')} />;
  const { since, label, rows, problem } = loaded.data;
  const shown = (labels ? [...rows] : byNamespace(rows)).sort((a, b) => b.allocated - a.allocated);
  return (
    <>
      <p class="hint">{t('hoursSince', since ? new Date(since * 1000).toLocaleString(currentLanguage()) : '–')}</p>
      {problem && <p class="hint">{t('hoursProblem', problem)}</p>}
      <p class="buttons">
        <label>
          <input type="checkbox" checked={labels} onChange={(e) => setLabels(e.currentTarget.checked)} /> {t('hoursByLabel', label)}
        </label>
        <button type="button" onClick={() => setReloads(reloads + 1)}>
          {t('loadAgain')}
        </button>
        <button type="button" aria-label={t('hoursCsv')} disabled={shown.length === 0} onClick={() => save(shown, label)}>
          {t('csv')}
        </button>
      </p>
      {shown.length === 0 ? <p>{t('hoursNone')}</p> : <HoursTable rows={shown} label={labels ? label : undefined} />}
    </>
  );
}
