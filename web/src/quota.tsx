// SPDX-License-Identifier: Apache-2.0
// Quotas with their editor, and the GPUs that each namespace holds now.
import { useState } from 'preact/hooks';
import { csvOf, download, gpuText, memoryText } from './format';
import { Hours } from './hours';
import { t } from './i18n';
import { Bar, Empty, ErrorNote, Lacking, Table, useLoaded, useMissingRights, useModels, usePaced } from './parts';
import { QuotaEditor, type Entry } from './quota_editor';
import { ServerText } from './server_text';
import { addUp, api, useCluster } from './store';

interface Line {
  namespace: string;
  model: string;
  usedMilli: number;
  limitMilli?: number;
  pools: string[];
}

interface QuotasProps {
  lines: Line[];
  locked: boolean; // the user may not change quotas
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

interface Held {
  namespace: string;
  pods: number;
  milli: number;
  bytes: number;
}

function Usage({ held }: { held: Held[] }) {
  const { nodes, mayListNodes } = useCluster();
  if (held.length === 0) return <Empty title={t('noneHeld')} />;
  const gpus = Math.max(1, addUp([...nodes.values()].map((node) => node.sum)).gpus);
  const save = () =>
    download(
      'usage.csv',
      csvOf(
        ['namespace', 'pods', 'gpus', 'memory_bytes'],
        held.map((one) => [one.namespace, one.pods, one.milli / 1000, one.bytes]),
      ),
    );
  const columns = [t('namespace'), t('pods'), t('gpus'), t('memory')];
  return (
    <>
      <Table label={t('usage')} columns={mayListNodes ? [...columns, t('shareOfAll')] : columns}>
        {held.map((one) => (
          <tr key={one.namespace}>
            <th scope="row">{one.namespace}</th>
            <td class="number">{one.pods}</td>
            <td class="number">{gpuText(one.milli)}</td>
            <td class="number">{memoryText(one.bytes)}</td>
            {mayListNodes && (
              <td>
                <Bar part={one.milli / 1000 / gpus} label={`${(one.milli / 10 / gpus).toFixed(1)} %`} />
              </td>
            )}
          </tr>
        ))}
      </Table>
      {!mayListNodes && <p class="hint">{t('shareHidden')}</p>}
      <button type="button" onClick={save}>
        {t('csv')}
      </button>
    </>
  );
}

const kPause = 3000; // in milliseconds

interface Quota {
  lines: Line[];
  entries: Record<string, Entry>;
  held: Held[];
  problem?: string;
}

export function QuotaPage() {
  const version = usePaced(useCluster().version, kPause);
  const [edited, setEdited] = useState<string | null>(null);
  const [changes, setChanges] = useState(0);
  const loaded = useLoaded(`${version} ${changes}`, () => api<Quota>('/api/v1/quota'));
  const missing = useMissingRights();
  const locked = !!missing.quota?.length;
  const models = useModels();
  return (
    <>
      <h1>{t('quota')}</h1>
      <h2>{t('quotas')}</h2>
      <p class="hint">{t('usedAndAllocated')}</p>
      {loaded.error && <ErrorNote message={loaded.error} />}
      {loaded.data?.problem && (
        <p class="note">
          {t('quotaUnknown', '')}
          <ServerText text={loaded.data.problem} />
        </p>
      )}
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
      {loaded.data && <Usage held={loaded.data.held} />}
      <h2>{t('gpuHours')}</h2>
      <Hours />
    </>
  );
}
