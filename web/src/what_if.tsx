// SPDX-License-Identifier: Apache-2.0
// The picture of a placement: the nearest nodes GPU by GPU, what would make room, and questions
// "what if". The placement engine answers all of them.
import { useState } from 'preact/hooks';
import { kindText, t } from './i18n';
import { ErrorNote, useLoaded, useModels } from './parts';
import { ServerText } from './server_text';
import { api, cluster, podLink, useCluster } from './store';
import { Reasons, type Fit } from './workloads';

export interface NearNode {
  node: string;
  fits: boolean;
  text: string;
  gpus: { name: string; reason: string; text: string; chosen: boolean }[];
}

// A letter for each reason in one picture.
function lettersOf(near: NearNode[]): Map<string, string> {
  const reasons = [...new Set(near.flatMap((node) => node.gpus.map((gpu) => gpu.reason)))].filter(Boolean).sort();
  return new Map(reasons.map((reason, i) => [reason, String.fromCharCode(65 + i)]));
}

export function NearNodes({ near }: { near: NearNode[] }) {
  const letters = lettersOf(near);
  const anyChosen = near.some((node) => node.gpus.some((gpu) => gpu.chosen));
  return (
    <div>
      <h2>{t('nearest')}</h2>
      <ul class="legend">
        <li>
          <span class="gpu" aria-hidden="true" /> {t('legendRoom')}
        </li>
        {anyChosen && (
          <li>
            <span class="gpu healthy" aria-hidden="true" /> {t('legendChosen')}
          </li>
        )}
        {[...letters].map(([reason, letter]) => (
          <li key={reason}>
            <span class="gpu short" aria-hidden="true">
              {letter}
            </span>{' '}
            {kindText(reason)}
          </li>
        ))}
      </ul>
      <ul class="near">
        {near.map((node) => (
          <li key={node.node}>
            <a href={`#/node/${encodeURIComponent(node.node)}`}>{node.node}</a>
            <span class="gpus" aria-hidden="true">
              {node.gpus.map((gpu) => (
                <span class={`gpu ${gpu.chosen ? 'healthy' : gpu.reason ? 'short' : ''}`} title={`${gpu.name}: ${gpu.text || t('legendRoom')}`}>
                  {letters.get(gpu.reason)}
                </span>
              ))}
            </span>
            <span class="hint">{node.fits ? t('nearFits') : <ServerText text={node.text} />}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

interface Room {
  pods: { namespace: string; name: string; node: string; request: string; otherNodes: number; best: string }[];
  complete: boolean;
}

const queryOf = (namespace: string, name: string) =>
  `namespace=${encodeURIComponent(namespace)}&name=${encodeURIComponent(name)}`;

function RoomFor({ namespace, name, fit }: { namespace: string; name: string; fit: Fit }) {
  const loaded = useLoaded(`${namespace}/${name} ${fit.summary}`, () => api<Room>(`/api/v1/room?${queryOf(namespace, name)}`));
  const nodesOf = (kind: string) => fit.groups.find((group) => group.kind === kind)?.names ?? [];
  const cordoned = nodesOf('cordoned').slice(0, 5);
  const quota = fit.groups.some((group) => group.kind === 'quota');
  const pods = loaded.data?.pods ?? [];
  const nothing = loaded.data && pods.length + cordoned.length === 0 && !quota;
  return (
    <section aria-label={t('makesRoom')}>
      <h2>{t('makesRoom')}</h2>
      {loaded.error && <ErrorNote message={loaded.error} />}
      <ul class="room">
        {pods.map((pod) => (
          <li key={`${pod.namespace}/${pod.name}`}>
            {t('roomEnd')} <a href={podLink(pod.namespace, pod.name)}>{`${pod.namespace}/${pod.name}`}</a>{' '}
            {t('roomOn', pod.node, pod.request)}{' '}
            <span class="hint">{pod.otherNodes > 0 ? t('roomMove', pod.otherNodes, pod.best) : t('roomNoMove')}</span>
          </li>
        ))}
        {cordoned.map((node) => (
          <li key={node}>
            {t('roomUncordon')} <a href={`#/node/${encodeURIComponent(node)}`}>{node}</a>
          </li>
        ))}
        {quota && (
          <li>
            <a href="#/quota">{t('roomQuota', namespace)}</a>
          </li>
        )}
        {nothing && <li>{t('roomNothing')}</li>}
      </ul>
      {loaded.data && !loaded.data.complete && <p class="hint">{t('roomIncomplete')}</p>}
    </section>
  );
}

interface Question {
  kind: 'same' | 'whole' | 'part';
  gpus: number;
  hundredths: number;
  memoryBlocks: number;
  model: string; // "=": the model of the pod's own request
  without: string; // the pod to leave out, as "namespace/name"; may be empty
}

const kInitialQuestion: Question = { kind: 'same', gpus: 1, hundredths: 50, memoryBlocks: 16, model: '=', without: '' };

function bodyOf(namespace: string, name: string, question: Question): Record<string, unknown> {
  const body: Record<string, unknown> = { namespace, name };
  if (question.kind === 'whole') body.request = { whole: true, gpus: question.gpus };
  if (question.kind === 'part') {
    body.request = { whole: false, hundredths: question.hundredths, memoryBlocks: question.memoryBlocks };
  }
  if (question.model !== '=') body.model = question.model;
  const [otherNamespace, other] = question.without.split('/');
  if (other) body.without = { namespace: otherNamespace, name: other };
  return body;
}

function NumberField({ id, label, value, max, onInput }: { id: string; label: string; value: number; max: number; onInput: (n: number) => void }) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} type="number" min="1" max={max} step="1" value={value} onInput={(e) => onInput(Number(e.currentTarget.value))} />
    </div>
  );
}

function Questions({ namespace, name }: { namespace: string; name: string }) {
  const { pods } = useCluster();
  const [question, setQuestion] = useState(kInitialQuestion);
  const [answer, setAnswer] = useState<(Fit & { request: string }) | null>(null);
  const [error, setError] = useState('');
  const set = (part: Partial<Question>) => (setQuestion({ ...question, ...part }), setAnswer(null));
  // Whether the field is neither empty nor a pod as "namespace/name".
  const invalidPod = question.without !== '' && !/^[^/\s]+\/[^/\s]+$/.test(question.without);
  const ask = async (event: Event) => {
    event.preventDefault();
    setError('');
    if (invalidPod) return;
    try {
      setAnswer(await api('/api/v1/whatif', bodyOf(namespace, name, question)));
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  const models = useModels();
  const others = [...pods.values()]
    .filter((pod) => pod.node && pod.name !== name)
    .map((pod) => `${pod.namespace}/${pod.name}`)
    .sort();
  return (
    <section aria-label={t('whatIf')}>
      <h2>{t('whatIf')}</h2>
      <form class="what-if" onSubmit={ask}>
        <div class="field">
          <label for="what-request">{t('request')}</label>
          <select id="what-request" value={question.kind} onChange={(e) => set({ kind: e.currentTarget.value as Question['kind'] })}>
            <option value="same">{t('asItIs')}</option>
            <option value="whole">{t('whole')}</option>
            <option value="part">{t('part')}</option>
          </select>
        </div>
        {question.kind === 'whole' && (
          <NumberField id="what-gpus" label={t('count')} value={question.gpus} max={1024} onInput={(gpus) => set({ gpus })} />
        )}
        {question.kind === 'part' && (
          <>
            <NumberField id="what-share" label={t('sharePercent')} value={question.hundredths} max={99} onInput={(hundredths) => set({ hundredths })} />
            <NumberField id="what-memory" label={`${t('memory')} ${t('blocks')}`} value={question.memoryBlocks} max={4096} onInput={(memoryBlocks) => set({ memoryBlocks })} />
          </>
        )}
        <div class="field">
          <label for="what-model">{t('model')}</label>
          <select id="what-model" value={question.model} onChange={(e) => set({ model: e.currentTarget.value })}>
            <option value="=">{t('asItIs')}</option>
            <option value="">{t('anyModel')}</option>
            {models.map((model) => (
              <option value={model}>{model}</option>
            ))}
          </select>
        </div>
        <div class="field">
          <label for="what-without">{t('without')}</label>
          <input id="what-without" list="what-pods" value={question.without} placeholder="namespace/pod" aria-invalid={invalidPod || undefined} aria-describedby={invalidPod ? 'what-without-error' : undefined} onInput={(e) => set({ without: e.currentTarget.value.trim() })} />
          <datalist id="what-pods">
            {others.slice(0, 500).map((pod) => (
              <option value={pod} />
            ))}
          </datalist>
          {invalidPod && (
            <span class="field-error" id="what-without-error">
              {t('withoutUnclear')}
            </span>
          )}
        </div>
        <button type="submit" class="primary" disabled={invalidPod}>
          {t('ask')}
        </button>
      </form>
      <div role="status">
        {error && <ErrorNote message={error} />}
        {answer && (
          <div class="preview">
            <p class="hint">{t('whatIfAnswer', answer.request || '–')}</p>
            <Reasons fit={answer} namespace={namespace} />
            {answer.near && answer.near.length > 0 && <NearNodes near={answer.near} />}
          </div>
        )}
      </div>
    </section>
  );
}

// The part of a pod's page below the reasons: the nearest nodes, the pods that would make room, and the questions.
export function Insight({ namespace, name, fit, waits }: { namespace: string; name: string; fit: Fit; waits: boolean }) {
  return (
    <>
      {fit.near && fit.near.length > 0 && <NearNodes near={fit.near} />}
      {waits && fit.fits === 0 && fit.near && cluster.mayListNodes && <RoomFor namespace={namespace} name={name} fit={fit} />}
      <Questions namespace={namespace} name={name} />
    </>
  );
}
