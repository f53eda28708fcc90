// SPDX-License-Identifier: Apache-2.0
// The editor of one namespace's quota. It shows the consequences of a change before the user applies it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { gpuText } from './format';
import { t } from './i18n';
import { ErrorNote } from './parts';
import { api } from './store';

// A namespace's entry in the ConfigMap of quotas; null: no limit.
export type Entry = { quota?: Record<string, number>; pool?: string[] } | null;

interface Consequences {
  lines: { model: string; usedMilli: number; limitMilli: number }[];
  unknown: string[]; // models that no GPU has
  over: { pod: string; model: string; milli: number }[];
  outside: string[];
  waiting: { pod: string; before: number; after: number }[];
  noNamespace?: boolean;
}

interface Row {
  model: string;
  gpus: string;
}

const kPreviewDelayMs = 250;

function rowsOf(entry: Entry): Row[] {
  return Object.entries(entry?.quota ?? {}).map(([model, gpus]) => ({ model, gpus: String(gpus) }));
}

// The entry that the fields describe, or an error as a string.
function entryOf(limited: boolean, rows: Row[], pools: string): Entry | string {
  const pool = pools.split(/[\s,]+/).filter(Boolean);
  if (!limited) return pool.length > 0 ? { pool } : null;
  const quota: Record<string, number> = {};
  for (const { model, gpus } of rows) {
    if (model.trim() === '' || !/^\d+$/.test(gpus.trim())) return t('quotaInvalid');
    if (Object.hasOwn(quota, model.trim())) return t('quotaTwice', model);
    quota[model.trim()] = Number(gpus);
  }
  return pool.length > 0 ? { quota, pool } : { quota };
}

function ConsequenceList({ found }: { found: Consequences }) {
  const over = found.lines.filter((line) => line.usedMilli > line.limitMilli);
  const blocked = found.waiting.filter((pod) => pod.after === 0);
  const freed = found.waiting.filter((pod) => pod.before === 0 && pod.after > 0);
  const names = (pods: { pod: string }[]) => pods.map((one) => one.pod).join(', ');
  return (
    <ul class="consequences">
      {found.lines.length > 0 && <li>{t('quotaOthers')}</li>}
      {found.lines.map((line) => (
        <li key={line.model} class={line.usedMilli > line.limitMilli ? 'alarm' : ''}>
          {t('quotaLine', line.model, gpuText(line.usedMilli), gpuText(line.limitMilli))}
        </li>
      ))}
      {found.unknown.length > 0 && <li class="alarm">{t('quotaNoSuchModel', found.unknown.join(', '))}</li>}
      {over.length > 0 && <li>{t('quotaOver', names(found.over))}</li>}
      {found.outside.length > 0 && <li>{t('quotaOutside', found.outside.join(', '))}</li>}
      {blocked.length > 0 && <li>{t('quotaBlocked', names(blocked))}</li>}
      {freed.length > 0 && <li>{t('quotaFreed', names(freed))}</li>}
      {over.length + found.outside.length + blocked.length + freed.length === 0 && <li>{t('quotaNoChange')}</li>}
    </ul>
  );
}

// The consequences of `entry`. Asks a moment after the last key, and ignores answers about older entries.
function useConsequences(namespace: string, entry: Entry | string) {
  const [found, setFound] = useState<Consequences | null>(null);
  const [error, setError] = useState('');
  const number = useRef(0);
  const text = JSON.stringify(entry);
  useEffect(() => {
    const requestNumber = ++number.current;
    setFound(null);
    setError('');
    if (typeof entry === 'string' || namespace === '') return;
    const timer = setTimeout(() => {
      api<Consequences>('/api/v1/quota/preview', { namespace, entry }).then(
        (answer) => requestNumber === number.current && setFound(answer),
        (failure: Error) => requestNumber === number.current && setError(failure.message),
      );
    }, kPreviewDelayMs);
    return () => clearTimeout(timer);
  }, [namespace, text]);
  return { found, error };
}

interface EditorProps {
  namespace: string; // empty: the user names the namespace
  before: Entry;
  models: string[];
  onDone: (changed: boolean) => void;
}

export function QuotaEditor({ namespace, before, models, onDone }: EditorProps) {
  // The entry that the user saw. If another user has changed it, the server rejects this change.
  const [seen] = useState(before);
  const [name, setName] = useState(namespace);
  const [limited, setLimited] = useState(namespace === '' || before?.quota !== undefined);
  const [rows, setRows] = useState(() => (before?.quota ? rowsOf(before) : [{ model: models[0] ?? '', gpus: '' }]));
  const [pools, setPools] = useState((before?.pool ?? []).join(', '));
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);
  const entry = entryOf(limited, rows, pools);
  const { found, error: previewError } = useConsequences(name.trim(), entry);
  const set = (i: number, part: Partial<Row>) => setRows(rows.map((row, at) => (at === i ? { ...row, ...part } : row)));
  const apply = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError('');
    try {
      await api('/api/v1/quota', { namespace: name.trim(), entry, before: seen });
      onDone(true);
    } catch (failure) {
      setError((failure as Error).message);
      setBusy(false);
    }
  };
  return (
    <form class="preview" onSubmit={apply} aria-label={t('quotaEdit', name)}>
      <h3>{namespace ? t('quotaEdit', namespace) : t('quotaNew')}</h3>
      {!namespace && (
        <p class="field">
          <label for="quota-namespace">{t('namespace')}</label>
          <input
            id="quota-namespace"
            required
            value={name}
            aria-describedby={found?.noNamespace ? 'quota-namespace-warning' : undefined}
            onInput={(e) => setName(e.currentTarget.value)}
          />
          {found?.noNamespace && (
            <span class="field-warning" id="quota-namespace-warning" role="status">
              {t('quotaNoNamespace', name.trim())}
            </span>
          )}
        </p>
      )}
      <label class="radio">
        <input type="checkbox" checked={limited} onChange={(e) => setLimited(e.currentTarget.checked)} /> {t('quotaLimited')}
      </label>
      {limited && (
        <fieldset>
          <legend>{t('limit')}</legend>
          {rows.map((row, i) => (
            <div class="quota-row" key={i}>
              <input
                aria-label={t('model')}
                list="quota-models"
                value={row.model}
                onInput={(e) => set(i, { model: e.currentTarget.value })}
              />
              <input
                aria-label={t('gpus')}
                type="number"
                min="0"
                step="1"
                value={row.gpus}
                onInput={(e) => set(i, { gpus: e.currentTarget.value })}
              />
              <button type="button" aria-label={t('quotaRemove', row.model)} onClick={() => setRows(rows.filter((_, at) => at !== i))}>
                ×
              </button>
            </div>
          ))}
          <datalist id="quota-models">
            {models.map((model) => (
              <option value={model} />
            ))}
          </datalist>
          <button type="button" onClick={() => setRows([...rows, { model: '', gpus: '' }])}>
            {t('quotaAdd')}
          </button>
        </fieldset>
      )}
      <p class="field">
        <label for="quota-pools">{t('pools')}</label>
        <input id="quota-pools" value={pools} placeholder={t('any')} onInput={(e) => setPools(e.currentTarget.value)} />
      </p>
      <div role="status">
        <h4>{t('consequences')}</h4>
        {typeof entry === 'string' && <p class="hint">{entry}</p>}
        {previewError && <ErrorNote message={previewError} />}
        {found && <ConsequenceList found={found} />}
      </div>
      <p class="buttons">
        <button type="submit" class="primary" disabled={busy || typeof entry === 'string' || name.trim() === ''}>
          {t('quotaApply')}
        </button>
        <button type="button" onClick={() => onDone(false)}>
          {t('cancel')}
        </button>
      </p>
      {error && <ErrorNote message={error} />}
    </form>
  );
}
