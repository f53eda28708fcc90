// SPDX-License-Identifier: Apache-2.0
// The changes that a user can make to a node: cordon, drain with a preview, and its mode. The server
// sends each change with the user's own rights.
import { useEffect, useState } from 'preact/hooks';
import { t, type Key } from './i18n';
import { ErrorNote, Lacking, Table, useLoaded, useMissingRights } from './parts';
import { ServerText } from './server_text';
import { api, ApiError, cluster, type Node } from './store';

interface DrainedPod {
  namespace: string;
  name: string;
  owner: string;
  result: 'stays' | 'evicted' | 'refused' | 'failed';
  why?: string;
}

interface Drained {
  pods: DrainedPod[];
  dryRun: boolean;
}

interface Choice {
  pool: string;
  agents: string;
  mode: 'shared' | 'whole';
  current: boolean;
  labels: Record<string, string | null>;
  problem?: string;
}

const pathOf = (name: string, what: string) => `/api/v1/nodes/${encodeURIComponent(name)}/${what}`;

// Runs one action at a time, and keeps its error.
function useAction() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState('');
  const run = async (action: () => Promise<void>) => {
    setBusy(true);
    setError('');
    try {
      await action();
    } catch (failure) {
      setError((failure as Error).message);
    }
    setBusy(false);
  };
  return { busy, error, run };
}

const kResults: Record<DrainedPod['result'], [Key, string]> = {
  stays: ['podStays', ''],
  evicted: ['podEvicted', 'bound'],
  refused: ['podRefused', 'waiting'],
  failed: ['podFailed', 'unhealthy'],
};

function resultText(pod: DrainedPod, dryRun: boolean): string {
  return t(pod.result === 'evicted' && dryRun ? 'podWouldGo' : kResults[pod.result][0]);
}

function Why({ pod }: { pod: DrainedPod }) {
  return pod.result === 'stays' ? <>{t(`stays:${pod.why}` as Key)}</> : <ServerText text={pod.why} />;
}

// The requests of pods with GPUs, by "namespace/name".
function requests(): Map<string, string> {
  return new Map([...cluster.pods.values()].map((pod) => [`${pod.namespace}/${pod.name}`, pod.request]));
}

function DrainTable({ drained }: { drained: Drained }) {
  const gpus = requests();
  const order = ['refused', 'failed', 'evicted', 'stays'];
  const pods = [...drained.pods].sort((a, b) => order.indexOf(a.result) - order.indexOf(b.result));
  if (pods.length === 0) return <p>{t('drainNoPods')}</p>;
  return (
    <Table label={t('drain')} class="drain" columns={[t('pods'), t('owner'), t('gpus'), t('result'), t('why')]}>
      {pods.map((pod) => (
        <tr key={`${pod.namespace}/${pod.name}`}>
          <th scope="row">
            {pod.namespace}/{pod.name}
          </th>
          <td>{pod.owner || '–'}</td>
          <td>{gpus.get(`${pod.namespace}/${pod.name}`) ?? '–'}</td>
          <td>
            <span class={`pill ${kResults[pod.result][1]}`}>{resultText(pod, drained.dryRun)}</span>
          </td>
          <td>
            <Why pod={pod} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

interface ControlProps {
  node: Node;
  lacks?: string[]; // the rights that the user lacks for the control
}

function Drain({ node, lacks }: ControlProps) {
  const { busy, error, run } = useAction();
  const [drained, setDrained] = useState<Drained | null>(null);
  const [force, setForce] = useState(false);
  const ask = (dryRun: boolean) =>
    run(async () => {
      const answer = await api<{ pods: DrainedPod[] }>(pathOf(node.name, 'drain'), { dryRun, force });
      setDrained({ pods: answer.pods, dryRun });
    });
  const count = (result: DrainedPod['result']) => drained?.pods.filter((pod) => pod.result === result).length ?? 0;
  const disabled = busy || !!lacks?.length;
  const losable = drained?.pods.some((pod) => pod.why === 'unmanaged' || pod.why === 'local-data');
  return (
    <>
      <p class="buttons">
        <button type="button" disabled={disabled} aria-describedby={lacks?.length ? 'drain-lacks' : undefined} onClick={() => void ask(true)}>
          {t('drainPreview')}
        </button>
        {drained && (
          <button type="button" class="primary" disabled={disabled} onClick={() => void ask(false)}>
            {t(drained.dryRun ? 'drainNow' : 'drainAgain')}
          </button>
        )}
        {(losable || force) && (
          <label>
            <input
              type="checkbox"
              checked={force}
              onChange={(e) => (setForce(e.currentTarget.checked), setDrained(null))}
            />{' '}
            {t('drainForce')}
          </label>
        )}
      </p>
      <Lacking id="drain-lacks" rights={lacks} />
      {error && <ErrorNote message={error} />}
      {drained && (
        <div role="status">
          <p>
            {t(drained.dryRun ? 'drainWould' : 'drainDid', count('evicted'), count('stays'))}{' '}
            {count('refused') > 0 && <b>{t('drainRefused', count('refused'))}</b>}
          </p>
        </div>
      )}
      {drained && <DrainTable drained={drained} />}
    </>
  );
}

function labelsText(labels: Choice['labels']): string {
  return Object.entries(labels)
    .map(([label, value]) => (value === null ? t('labelRemoved', label) : `${label}=${value}`))
    .join(', ');
}

function Mode({ node, lacks }: ControlProps) {
  const { busy, error, run } = useAction();
  const [wanted, setWanted] = useState<string | null>(null);
  const [reloads, setReloads] = useState(0);
  const loaded = useLoaded(`${node.name} ${reloads}`, () => api<{ choices: Choice[]; byHelm?: boolean }>(pathOf(node.name, 'mode')));
  const choices = loaded.data?.choices ?? [];
  const chosen = choices.find((choice) => (wanted === null ? choice.current : choice.agents === wanted));
  const apply = () =>
    run(async () => {
      await api(pathOf(node.name, 'mode'), { pool: chosen!.pool });
      setWanted(null);
      setReloads(reloads + 1);
    });
  const lacking = <Lacking id="mode-lacks" rights={lacks} />;
  if (loaded.failure instanceof ApiError && loaded.failure.status === 403 && lacks?.length) return lacking;
  if (loaded.error) return (
      <p class="hint">
        {t('modeUnknown', '')}
        <ServerText text={loaded.error} />
      </p>
    );
  return (
    <>
      {choices.length > 0 && (
        <fieldset aria-describedby={lacks?.length ? 'mode-lacks' : undefined}>
          <legend>{t('mode')}</legend>
          {choices.map((choice) => (
            <label class="radio" key={choice.agents}>
              <input
                type="radio"
                name="mode"
                checked={choice === chosen}
                disabled={!!choice.problem || !!lacks?.length}
                onChange={() => setWanted(choice.agents)}
              />{' '}
              {t(choice.mode === 'whole' ? 'modeWhole' : 'modeShared')}
              <span class="hint">
                {' '}
                {choice.pool ? t('modePool', choice.pool) : t('modeNoPool')}
                {choice.current ? `, ${t('modeCurrent')}` : ''}
                {choice.problem && ' – '}
                <ServerText text={choice.problem} />
              </span>
            </label>
          ))}
          {chosen && !chosen.current && (
            <>
              <p>{t('modeChange', labelsText(chosen.labels))}</p>
              <p>
                <button type="button" class="primary" disabled={busy} onClick={() => void apply()}>
                  {t('modeApply')}
                </button>
              </p>
            </>
          )}
        </fieldset>
      )}
      {lacking}
      {error && <ErrorNote message={error} />}
      {loaded.data && choices.length < 2 && (
        <>
          <p class="hint">{t(choices.length === 0 ? 'modeNone' : loaded.data.byHelm ? 'modeHelm' : 'modeOne')}</p>
          <pre tabIndex={0}>{'pools:\n- name: whole\n  nodeSelector: {gpu-mode: whole}\n  mode: whole'}</pre>
        </>
      )}
    </>
  );
}

export function NodeActions({ node }: { node: Node }) {
  const { busy, error, run } = useAction();
  const [open, setOpen] = useState(false);
  const missing = useMissingRights();
  useEffect(() => setOpen(false), [node.name]);
  const cordon = (cordoned: boolean) => run(async () => void (await api(pathOf(node.name, 'cordon'), { cordoned })));
  return (
    <section aria-label={t('change')}>
      <h2>{t('change')}</h2>
      <p class="buttons">
        <button
          type="button"
          disabled={busy || !!missing.cordon?.length}
          aria-describedby={missing.cordon?.length ? 'cordon-lacks' : undefined}
          onClick={() => void cordon(!node.cordoned)}
        >
          {t(node.cordoned ? 'uncordon' : 'cordon')}
        </button>
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          {t('drainAndMode')}
        </button>
      </p>
      <Lacking id="cordon-lacks" rights={missing.cordon} />
      {error && <ErrorNote message={error} />}
      {open && (
        <>
          <h3>{t('drain')}</h3>
          <p class="hint">{t('drainHint')}</p>
          <Drain node={node} lacks={missing.drain} key={node.name} />
          <h3>{t('mode')}</h3>
          <Mode node={node} lacks={missing.mode} key={`mode ${node.name}`} />
        </>
      )}
    </section>
  );
}
