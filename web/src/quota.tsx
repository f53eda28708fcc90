// SPDX-License-Identifier: Apache-2.0
// Quotas with their editor, and what each namespace holds now.
import { useState } from 'preact/hooks';
import { csvOf, download, gpuText, memoryText } from './format';
import { Hours } from './hours';
import { t } from './i18n';
import { Bar, Empty, ErrorNote, Lacking, Table, useLoaded, useMissingRights } from './parts';
import { QuotaEditor, type Entry } from './quota_editor';
import { api, cluster, useCluster } from './store';

interface Line {
  namespace: string;
  model: string;
  usedMilli: number;
  limitMilli?: number;
  pools: string[];
}

interface QuotasProps {
  lines: Line[];
  locked: boolean; // the person may not change quotas
  onEdit: (namespace: string) => void;
}

function Quotas({ lines, locked, onEdit }: QuotasProps) {
  if (lines.length === 0) return <Empty title={t('noQuotas')} />;
  const left = (line: Line) => (line.limitMilli === undefined ? '–' : gpuText(line.limitMilli - line.usedMilli));
  const save = () =>
    download(
      'quota.csv',
      csvOf(
        ['namespace', 'model', 'used', 'limit', 'pools'],
        lines.map((line) => [
          line.namespace,
          line.model,
          line.usedMilli / 1000,
          line.limitMilli === undefined ? '' : line.limitMilli / 1000,
          line.pools.join(' '),
        ]),
      ),
    );
  return (
    <>
      <Table
        label={t('quotas')}
        columns={[t('namespace'), t('model'), t('used'), t('left'), t('limit'), t('pools'), t('change')]}
      >
        {lines.map((line) => (
          <tr>
            <th scope="row">{line.namespace}</th>
            <td>{line.model}</td>
            <td>
              {line.limitMilli ? (
                <Bar part={line.usedMilli / line.limitMilli} label={gpuText(line.usedMilli)} />
              ) : (
                gpuText(line.usedMilli)
              )}
            </td>
            <td class="number">{left(line)}</td>
            <td class="number">{line.limitMilli === undefined ? t('none') : gpuText(line.limitMilli)}</td>
            <td>{line.pools.join(', ') || t('any')}</td>
            <td>
              <button
                type="button"
                disabled={locked}
                aria-label={t('quotaEdit', line.namespace)}
                aria-describedby={locked ? 'quota-lacks' : undefined}
                onClick={() => onEdit(line.namespace)}
              >
                {t('edit')}
              </button>
            </td>
          </tr>
        ))}
      </Table>
      <button type="button" onClick={save}>
        {t('csv')}
      </button>
    </>
  );
}

interface Use {
  pods: number;
  milli: number;
  memory: number;
}

function usageByNamespace(): [string, Use][] {
  const uses = new Map<string, Use>();
  const of = (namespace: string) => {
    const use = uses.get(namespace) ?? { pods: 0, milli: 0, memory: 0 };
    uses.set(namespace, use);
    return use;
  };
  for (const pod of cluster.pods.values()) if (pod.node) of(pod.namespace).pods++;
  for (const node of cluster.nodes.values()) {
    for (const gpu of node.gpus) {
      for (const [uid, milli, bytes] of gpu.held) {
        const pod = cluster.pods.get(uid);
        if (!pod) continue;
        of(pod.namespace).milli += milli;
        of(pod.namespace).memory += bytes;
      }
    }
  }
  return [...uses].sort((a, b) => b[1].milli - a[1].milli || a[0].localeCompare(b[0]));
}

function Usage() {
  const rows = usageByNamespace();
  if (rows.length === 0) return <Empty title={t('emptyWorkloads')} />;
  const gpus = [...cluster.nodes.values()].reduce((sum, node) => sum + node.gpus.length, 0);
  const save = () =>
    download(
      'usage.csv',
      csvOf(
        ['namespace', 'pods', 'gpus', 'memory_bytes'],
        rows.map(([namespace, use]) => [namespace, use.pods, use.milli / 1000, use.memory]),
      ),
    );
  return (
    <>
      <Table label={t('usage')} columns={[t('namespace'), t('pods'), t('gpus'), t('memory'), t('share_')]}>
        {rows.map(([namespace, use]) => (
          <tr key={namespace}>
            <th scope="row">{namespace}</th>
            <td class="number">{use.pods}</td>
            <td class="number">{gpuText(use.milli)}</td>
            <td class="number">{memoryText(use.memory)}</td>
            <td>
              <Bar part={use.milli / 1000 / Math.max(1, gpus)} label={`${((use.milli / 10) / Math.max(1, gpus)).toFixed(1)} %`} />
            </td>
          </tr>
        ))}
      </Table>
      <button type="button" onClick={save}>
        {t('csv')}
      </button>
    </>
  );
}

interface Quota {
  lines: Line[];
  entries: Record<string, Entry>;
  problem?: string;
}

export function QuotaPage() {
  const { version, nodes } = useCluster();
  const [edited, setEdited] = useState<string | null>(null);
  const [changes, setChanges] = useState(0);
  const loaded = useLoaded(`${Math.floor(version / 5)} ${changes}`, () => api<Quota>('/api/v1/quota'));
  const missing = useMissingRights();
  const locked = !!missing.quota?.length;
  const models = [...new Set([...nodes.values()].flatMap((node) => node.gpus.map((gpu) => gpu.model)))].sort();
  return (
    <>
      <h1>{t('quota')}</h1>
      <h2>{t('quotas')}</h2>
      {loaded.error && <ErrorNote message={loaded.error} />}
      {loaded.data?.problem && <p class="note">{t('quotaUnknown', loaded.data.problem)}</p>}
      {loaded.data && <Quotas lines={loaded.data.lines} locked={locked} onEdit={setEdited} />}
      {loaded.data && <Lacking id="quota-lacks" rights={missing.quota} />}
      {loaded.data && edited === null && (
        <p>
          <button
            type="button"
            disabled={locked}
            aria-describedby={locked ? 'quota-lacks' : undefined}
            onClick={() => setEdited('')}
          >
            {t('quotaNew')}
          </button>
        </p>
      )}
      {loaded.data && edited !== null && (
        <QuotaEditor
          key={edited}
          namespace={edited}
          before={loaded.data.entries[edited] ?? null}
          models={models}
          onDone={(changed) => {
            setEdited(null);
            // The console learns of the change from its watch.
            if (changed) setTimeout(() => setChanges(changes + 1), 500);
          }}
        />
      )}
      <h2>{t('usage')}</h2>
      <Usage />
      <h2>{t('gpuHours')}</h2>
      <Hours />
    </>
  );
}
