// SPDX-License-Identifier: Apache-2.0
// The form of a workload beside its manifest. The server reads the form's fields from the manifest and
// changes them in its text, and its placement engine says where the workload fits.
import { useEffect, useRef, useState } from 'preact/hooks';
import { plainText, t, type Key } from './i18n';
import { Empty, ErrorNote, useModels } from './parts';
import { RunView, useRun } from './run';
import { api, podLink, useCluster } from './store';
import { Reasons, type Fit } from './workloads';

interface Form {
  name: string;
  namespace: string;
  image: string;
  whole: boolean;
  gpus: number;
  hundredths: number;
  memoryBlocks: number;
  model: string;
  replicas: number;
}

// Why the form cannot show a field of the manifest.
interface Unread {
  why: 'missing' | 'no-gpus' | 'other' | 'value';
  found: string;
}

interface Answer {
  yaml?: string;
  form?: Form;
  unread?: Record<string, Unread>;
  container?: string; // the container that the form shows, if there are several
  fields?: Record<string, string>;
  preview?: Fit & { request: string; requestsGpus: boolean };
  denied?: string; // why the user may not create the workload
  unchecked?: string; // why the API server could not say whether it would accept the workload
}

interface Created {
  namespace: string;
  name: string;
  selector?: string; // of a Deployment's pods
}

const kBlocksPerGib = 4;
const kPreviewDelayMs = 250;

const kEmptyForm: Form = {
  name: '',
  namespace: 'default',
  image: '',
  whole: false,
  gpus: 1,
  hundredths: 30,
  memoryBlocks: 20,
  model: '',
  replicas: 1,
};

// The last edit: of the text, or of the fields `form` in the text `yaml`.
interface Edit {
  yaml: string;
  form?: Partial<Form>;
}

// The fields of the form that make one amount in the manifest. If one is edited, all are sent.
const kAmount = ['whole', 'gpus', 'hundredths', 'memoryBlocks'] as const;

const unreadText = (unread?: Unread) => unread && t(`unread:${unread.why}`, unread.found);

interface FieldProps {
  id: string;
  label: Key;
  error?: string;
  hint?: string;
  value: string | number;
  onInput: (value: string) => void;
  list?: string[];
  number?: { min: number; max: number; step: number };
}

function Field({ id, label, error, hint, value, onInput, list, number }: FieldProps) {
  return (
    <div class="field">
      <label for={id}>{t(label)}</label>
      <input
        id={id}
        type={number ? 'number' : 'text'}
        {...number}
        value={value}
        list={list && `${id}-list`}
        aria-invalid={error ? true : undefined}
        aria-describedby={error ? `${id}-error` : hint && `${id}-hint`}
        autocomplete="off"
        spellcheck={false}
        onInput={(e) => onInput(e.currentTarget.value)}
      />
      {list && (
        <datalist id={`${id}-list`}>
          {list.map((one) => (
            <option value={one} />
          ))}
        </datalist>
      )}
      {error && (
        <span class="field-error" id={`${id}-error`}>
          {error}
        </span>
      )}
      {!error && hint && (
        <span class="hint" id={`${id}-hint`}>
          {hint}
        </span>
      )}
    </div>
  );
}

function MemoryField({ form, set, error }: { form: Form; set: (part: Partial<Form>) => void; error?: string }) {
  const [gib, setGib] = useState(false);
  const value = gib ? form.memoryBlocks / kBlocksPerGib : form.memoryBlocks;
  const take = (text: string) => set({ memoryBlocks: Number(text) * (gib ? kBlocksPerGib : 1) });
  return (
    <div class="pair">
      <Field
        id="memory"
        label="memory"
        value={value}
        number={{ min: gib ? 0.25 : 1, max: 4096, step: gib ? 0.25 : 1 }}
        error={error}
        onInput={take}
      />
      <div class="field">
        <label for="unit">{t('memoryUnit')}</label>
        <select id="unit" value={gib ? 'gib' : 'blocks'} onChange={(e) => setGib(e.currentTarget.value === 'gib')}>
          <option value="blocks">{t('blocks')}</option>
          <option value="gib">{t('gib')}</option>
        </select>
      </div>
    </div>
  );
}

interface InputsProps {
  form: Form;
  set: (part: Partial<Form>) => void;
  errors: Record<string, string>;
  unread: Record<string, Unread>;
  container?: string;
}

function Inputs({ form, set, errors, unread, container }: InputsProps) {
  const { pods } = useCluster();
  const models = useModels();
  const namespaces = [...new Set(['default', ...[...pods.values()].map((pod) => pod.namespace)])].sort();
  const text = (field: 'name' | 'namespace' | 'image') => ({
    id: field,
    label: field as Key,
    value: unread[field] ? '' : form[field],
    error: errors[field],
    hint: unreadText(unread[field]),
    onInput: (value: string) => set({ [field]: value }),
  });
  return (
    <>
      <Field {...text('name')} />
      <Field {...text('namespace')} list={namespaces} />
      {container && <p class="hint">{t('containerShown', container)}</p>}
      <Field {...text('image')} />
      <fieldset aria-describedby={unread.amount && 'amount-hint'}>
        <legend>{t('amount')}</legend>
        {([true, false] as const).map((whole) => (
          <label class="radio" key={whole}>
            <input
              type="radio"
              name="kind"
              checked={!unread.amount && form.whole === whole}
              onChange={() => set({ whole })}
            />{' '}
            {t(whole ? 'whole' : 'part')}
          </label>
        ))}
        {unread.amount ? (
          <span class="hint" id="amount-hint">
            {unreadText(unread.amount)}
          </span>
        ) : form.whole ? (
          <Field
            id="gpus"
            label="count"
            value={form.gpus}
            number={{ min: 1, max: 64, step: 1 }}
            error={errors.gpus}
            onInput={(value) => set({ gpus: Number(value) })}
          />
        ) : (
          <>
            <Field
              id="share"
              label="share"
              value={form.hundredths / 100}
              number={{ min: 0.01, max: 0.99, step: 0.01 }}
              error={errors.hundredths}
              onInput={(value) => set({ hundredths: Number((Number(value) * 100).toFixed(6)) })}
            />
            <MemoryField form={form} set={set} error={errors.memoryBlocks} />
          </>
        )}
      </fieldset>
      <div class="field">
        <label for="model">{t('model')}</label>
        <select
          id="model"
          value={unread.model ? '' : form.model}
          aria-describedby={unread.model && 'model-hint'}
          onChange={(e) => set({ model: e.currentTarget.value })}
        >
          <option value="">{t('anyModel')}</option>
          {[...new Set([...models, form.model].filter(Boolean))].map((model) => (
            <option value={model}>{model}</option>
          ))}
        </select>
        {unread.model && (
          <span class="hint" id="model-hint">
            {unreadText(unread.model)}
          </span>
        )}
      </div>
      <Field
        id="replicas"
        label="replicas"
        value={unread.replicas ? '' : form.replicas}
        hint={unreadText(unread.replicas)}
        number={{ min: 1, max: 10000, step: 1 }}
        error={errors.replicas}
        onInput={(value) => set({ replicas: Number(value) })}
      />
    </>
  );
}

// Asks for a preview of the last edit, a moment after the last key. Answers to older edits are ignored.
function usePreview(edited: Edit | null, take: (answer: Answer) => void) {
  const [error, setError] = useState('');
  const number = useRef(0);
  useEffect(() => {
    if (!edited) return;
    const requestNumber = ++number.current;
    const timer = setTimeout(() => {
      api<Answer>('/api/v1/preview', edited).then(
        (answer) => {
          if (requestNumber !== number.current) return;
          setError('');
          take(answer);
        },
        (failure: Error) => requestNumber === number.current && setError(failure.message),
      );
    }, kPreviewDelayMs);
    return () => clearTimeout(timer);
  }, [edited]);
  return error;
}

// How the new workload runs.
function NewWorkload({ namespace, name, selector }: Created) {
  const run = useRun(selector ? { namespace, deployment: name, selector } : { namespace, name });
  return (
    <>
      <p class="note" role="status">
        {t('created', `${namespace}/${name}`)} {!selector && <a href={podLink(namespace, name)}>{t('showIt')}</a>}
      </p>
      <h3>{t('run')}</h3>
      <RunView loaded={run} namespace={namespace} many={!!selector} />
    </>
  );
}

// The manifest survives the end of a session, in this tab.
const kDraft = 'draft';
export const dropDraft = () => sessionStorage.removeItem(kDraft);

export function CreatePage() {
  const { loaded } = useCluster();
  const [form, setForm] = useState(kEmptyForm);
  const [yaml, setYaml] = useState('');
  const [edited, setEdited] = useState<Edit | null>(null);
  // The fields that were changed and are not in the text yet.
  const changes = useRef<Partial<Form>>({});
  const [answer, setAnswer] = useState<Answer>({});
  const [result, setResult] = useState<{ error?: string; created?: Created }>({});
  const [busy, setBusy] = useState(false);
  // Whether the manifest and its preview are those of the last edit.
  const [current, setCurrent] = useState(false);

  const edit = (next: Edit) => {
    setEdited(next);
    setCurrent(false);
    setResult({});
  };
  useEffect(() => {
    const draft = sessionStorage.getItem(kDraft);
    if (draft) write(draft);
  }, []);
  useEffect(() => {
    if (yaml) sessionStorage.setItem(kDraft, yaml);
  }, [yaml]);
  const previewError = usePreview(edited, (next) => {
    setCurrent(true);
    if (next.yaml === undefined) return setAnswer({ unread: answer.unread, container: answer.container, fields: next.fields });
    setAnswer(next);
    changes.current = {};
    edited?.form ? setYaml(next.yaml) : setForm(next.form!);
  });
  const set = (part: Partial<Form>) => {
    const next = { ...form, ...part };
    setForm(next);
    const fields = kAmount.some((field) => field in part) ? [...kAmount] : (Object.keys(part) as (keyof Form)[]);
    const unread = { ...answer.unread };
    for (const field of fields) {
      Object.assign(changes.current, { [field]: next[field] });
      delete unread[field];
    }
    if (fields.length > 1) delete unread.amount;
    setAnswer({ ...answer, unread });
    edit({ yaml, form: yaml.trim() ? { ...changes.current } : next });
  };
  const write = (text: string) => {
    setYaml(text);
    changes.current = {};
    edit({ yaml: text });
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!current) return;
    setBusy(true);
    try {
      setResult({ created: await api<Created>('/api/v1/apply', { yaml }) });
      dropDraft();
    } catch (failure) {
      setResult({ error: (failure as Error).message });
    }
    setBusy(false);
  };

  if (!loaded) return <Empty page title={t('loading')} />;
  // An empty field is not an error before it is edited.
  const untouched = (field: string) => (field === 'name' || field === 'image') && form[field] === '';
  const errors: Record<string, string> = {};
  for (const [field, message] of Object.entries(previewError ? {} : answer.fields ?? {})) {
    const where = { exists: 'name', noNamespace: 'namespace' }[field] ?? field;
    if (untouched(field)) continue;
    errors[where] = field === 'yaml' ? plainText(message) : t(`error:${field}` as Key);
  }
  const ready = current && yaml !== '' && !answer.fields && !answer.denied && !previewError && !result.created;
  return (
    <>
      <h1>{t('create')}</h1>
      <form class="create" onSubmit={submit}>
        <div class="inputs">
          <Inputs form={form} set={set} errors={errors} unread={answer.unread ?? {}} container={answer.container} />
        </div>
        <div class="field manifest">
          <label for="yaml">{t('yaml')}</label>
          <span class="hint">{t('yamlHint')}</span>
          <textarea
            id="yaml"
            spellcheck={false}
            rows={22}
            value={yaml}
            aria-invalid={errors.yaml ? true : undefined}
            aria-describedby={errors.yaml && 'yaml-error'}
            onInput={(e) => write(e.currentTarget.value)}
          />
          {errors.yaml && (
            <span class="field-error" id="yaml-error">
              {errors.yaml}
            </span>
          )}
        </div>
        <section class="preview" aria-live="polite" aria-label={t('preview')}>
          <h2>{t('preview')}</h2>
          {previewError && <ErrorNote message={previewError} />}
          {!answer.preview && !previewError && <p class="hint">{t('previewWaiting')}</p>}
          {answer.preview && <Reasons fit={answer.preview} namespace={form.namespace} />}
          {answer.denied && (
            <p class="note bad-note" id="denied">
              {plainText(answer.denied)}
            </p>
          )}
          {answer.unchecked && <p class="note">{t('unchecked', plainText(answer.unchecked))}</p>}
          <button type="submit" class="primary" disabled={!ready || busy} aria-describedby={answer.denied && 'denied'}>
            {t('createButton')}
          </button>
          {result.error && <ErrorNote message={result.error} />}
          {result.created && <NewWorkload {...result.created} />}
        </section>
      </form>
    </>
  );
}
