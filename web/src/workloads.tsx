// SPDX-License-Identifier: Apache-2.0
// Pods that request GPUs, and the page of one pod, which says why it waits or why it is on its node.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ageText } from './format';
import { currentLanguage, kindText, t } from './i18n';
import { Empty, ErrorNote, Filter, Table, useLoaded, useSteadyFocus } from './parts';
import { Phase, reasonOf, RunView, useRun, type PodRun } from './run';
import { ServerText } from './server_text';
import { api, ApiError, podLink, sortedPods, useCluster, type Pod } from './store';
import { Insight, type NearNode } from './what_if';

const kMaxRows = 100;
const kStepRows = 30; // about a screen
const kPause = 200; // in milliseconds; longer than between two keys

function nodeCell(pod: Pod, mayListNodes: boolean) {
  if (!pod.node) return '–';
  return mayListNodes ? (
    <a href={`#/node/${encodeURIComponent(pod.node)}`} data-item={`${pod.uid} node`}>
      {pod.node}
    </a>
  ) : (
    pod.node
  );
}

// Returns a function that tells whether a pod matches the text of the filter.
function matcher(filter: string): (pod: Pod) => boolean {
  if (!filter) return () => true;
  const states = new Set((['waiting', 'bound', 'running', 'deleting'] as const).filter((state) => t(state).toLowerCase().includes(filter)));
  return (pod) => states.has(pod.state) || pod.search.includes(filter);
}

// The first `count` pods that match. The pods after them are not searched, so the screen shows these pods sooner.
function firstOf(pods: Pod[], filter: string, count: number): Pod[] {
  const matches = matcher(filter);
  const found: Pod[] = [];
  for (const pod of pods) {
    if (matches(pod)) found.push(pod);
    if (found.length === count) break;
  }
  return found;
}

interface MoreProps {
  pods: Pod[];
  filter: string;
  rows: number; // the count of rows that are shown
  onReached: () => void;
}

// The end of the list. Counts the pods that are not shown, and calls `onReached` when the end comes into view.
function More({ pods, filter, rows, onReached }: MoreProps) {
  const [more, setMore] = useState(0);
  const end = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    const timer = setTimeout(() => setMore(pods.filter(matcher(filter)).length - rows), kPause);
    return () => clearTimeout(timer);
  }, [pods, filter, rows]);
  useEffect(() => {
    if (rows >= kMaxRows) return;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && onReached());
    observer.observe(end.current!);
    return () => observer.disconnect();
  }, [filter, rows]);
  return <p ref={end}>{more > 0 && t('moreRows', more)}</p>;
}

export function WorkloadsPage() {
  const { pods, mayListNodes } = useCluster();
  const [filter, setFilter] = useState('');
  const [rows, setRows] = useState(kStepRows);
  const list = useRef<HTMLDivElement>(null);
  const onFocus = useSteadyFocus(list, 'item');
  const all = sortedPods();
  const found = useMemo(() => firstOf(all, filter, rows), [all, filter, rows, currentLanguage()]);
  const choose = (next: string) => (setFilter(next), setRows(kStepRows));
  // Elements of rows are reused, so a filter changes texts instead of making new elements.
  return (
    <>
      <h1>{t('workloads')}</h1>
      {pods.size === 0 ? (
        <Empty title={t('emptyWorkloads')} />
      ) : (
        <div ref={list} onFocusIn={onFocus}>
          <div class="tools">
            <Filter placeholder={t('filterPods')} onChange={choose} />
          </div>
          {found.length === 0 && <Empty title={t('noMatch')} />}
          {found.length > 0 && (
            <Table
              label={t('workloads')}
              columns={[t('namespace'), t('name'), t('state'), t('restarts'), t('request'), t('node'), t('age'), t('why')]}
            >
              {found.map((pod) => (
                <tr>
                  <td>{pod.namespace}</td>
                  <th scope="row">
                    <a href={podLink(pod.namespace, pod.name)} data-item={pod.uid}>
                      {pod.name}
                    </a>
                  </th>
                  <td>
                    <span class={`pill ${pod.state}`}>{t(pod.state)}</span>
                  </td>
                  <td class="number">{pod.restarts ?? 0}</td>
                  <td>{pod.request}</td>
                  <td>{nodeCell(pod, mayListNodes)}</td>
                  <td class="number">{ageText(pod.created)}</td>
                  <td>{pod.why && <ServerText text={pod.why} />}</td>
                </tr>
              ))}
            </Table>
          )}
          {found.length === rows && (
            <More pods={all} filter={filter} rows={rows} onReached={() => setRows(Math.min(kMaxRows, rows + kStepRows))} />
          )}
        </div>
      )}
      <Ended />
    </>
  );
}

// Pods that have ended. They hold no GPU, so the live view does not have them.
function Ended() {
  const [reloads, setReloads] = useState(0);
  return (
    <>
      <h2>{t('ended')}</h2>
      {reloads > 0 && <EndedPods key={reloads} />}
      <p>
        <button type="button" onClick={() => setReloads(reloads + 1)}>
          {t(reloads > 0 ? 'loadAgain' : 'endedShow')}
        </button>
      </p>
    </>
  );
}

function EndedPods() {
  const loaded = useLoaded('', () => api<{ pods: PodRun[]; complete: boolean }>('/api/v1/ended'));
  if (loaded.error) return <ErrorNote message={loaded.error} />;
  if (!loaded.data) return <p class="hint">{t('loadingRun')}</p>;
  const pods = loaded.data.pods.sort((a, b) => (a.created < b.created ? 1 : -1)).slice(0, kMaxRows);
  if (pods.length === 0) return <p class="hint">{t('endedNone')}</p>;
  return (
    <>
      <Table
        label={t('ended')}
        columns={[t('namespace'), t('name'), t('phase'), t('restarts'), t('node'), t('age'), t('why')]}
      >
        {pods.map((pod) => (
          <tr key={`${pod.namespace}/${pod.name}`}>
            <td>{pod.namespace}</td>
            <th scope="row">
              <a href={podLink(pod.namespace, pod.name)}>{pod.name}</a>
            </th>
            <td>
              <Phase pod={pod} />
            </td>
            <td class="number">{pod.restarts}</td>
            <td>{pod.node || '–'}</td>
            <td class="number">{ageText(Date.parse(pod.created) / 1000)}</td>
            <td>
              <ServerText text={reasonOf(pod)} />
            </td>
          </tr>
        ))}
      </Table>
      {(!loaded.data.complete || loaded.data.pods.length > kMaxRows) && <p class="hint">{t('endedMore', kMaxRows)}</p>}
    </>
  );
}

export interface Fit {
  nodes: number;
  fits: number;
  summary: string;
  quota?: string;
  replicas?: number;
  roomFor?: number; // how many of `replicas` have room together
  best?: string[];
  near?: NearNode[];
  groups: { kind: string; nodes: number; example?: string; names?: string[] }[];
}

// Squares for the nodes of a group; one square stands for several nodes of a large cluster.
const kMaxSquares = 400;

function Squares({ nodes, all, fit }: { nodes: number; all: number; fit: boolean }) {
  const each = Math.ceil(Math.max(1, all) / kMaxSquares);
  return (
    <span class="squares" aria-hidden="true">
      {Array.from({ length: Math.ceil(nodes / each) }, () => (
        <span class={`square ${fit ? 'fit' : 'misfit'}`} />
      ))}
    </span>
  );
}

// Nodes grouped by reason, as a picture.
export function Reasons({ fit, namespace, waits }: { fit: Fit; namespace: string; waits?: boolean }) {
  const groups = [...(fit.fits > 0 ? [{ kind: '', nodes: fit.fits }] : []), ...fit.groups] as Fit['groups'];
  return (
    <>
      <p class="verdict">
        {fit.fits > 0 ? t('fitsOn', fit.fits, fit.nodes) : t('fitsNone', fit.nodes)}
      </p>
      {waits && fit.fits > 0 && <p class="hint">{t('fitsAndWaits')}</p>}
      {fit.roomFor !== undefined && <p>{t('roomFor', fit.roomFor, fit.replicas!)}</p>}
      {fit.quota && (
        <p>
          {t('quotaLeft', namespace, '')}
          <ServerText text={fit.quota} />
        </p>
      )}
      {fit.best && fit.best.length > 0 && <p>{t('bestNodes', fit.best.join(', '))}</p>}
      {groups.length > 0 && (
        <>
          <p class="reasons-title">{t('nodesBy')}</p>
          <ul class="reasons">
            {groups.map((group) => (
              <li key={group.kind}>
                <Squares nodes={group.nodes} all={fit.nodes} fit={!group.kind} />
                <span>
                  <b>{group.nodes}</b> {group.kind ? kindText(group.kind) : '✓'}
                  {group.example && (
                    <span class="hint">
                      {' — '}
                      <ServerText text={group.example} />
                    </span>
                  )}
                  {group.names && (
                    <details>
                      <summary>{t('node')}</summary>
                      {group.names.map((name) => (
                        <a class="name" href={`#/node/${encodeURIComponent(name)}`}>
                          {name}
                        </a>
                      ))}
                    </details>
                  )}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

interface Explanation extends Fit {
  waits: boolean;
  node: string;
  request?: string;
  invalid?: string;
  gates: string[];
}

export function WorkloadPage({ namespace, name }: { namespace: string; name: string }) {
  const { pods, version } = useCluster();
  const pod = [...pods.values()].find((one) => one.namespace === namespace && one.name === name);
  const query = `namespace=${encodeURIComponent(namespace)}&name=${encodeURIComponent(name)}`;
  // While the pod waits, the page asks again at most once in ten versions, because for each answer the server
  // evaluates the whole cluster.
  const key = `${query} ${pod?.state} ${pod?.why} ${pod?.state === 'waiting' ? Math.floor(version / 10) : ''}`;
  const loaded = useLoaded(key, () => api<Explanation>(`/api/v1/explain?${query}`));
  const explained = loaded.data;
  const run = useRun({ namespace, name });
  // The placement engine does not know a pod that has ended. The page still shows how the pod ended.
  const ended = loaded.failure instanceof ApiError && loaded.failure.status === 404 && !!run.data?.pods.length;
  return (
    <>
      <p>
        <a href="#/workloads">← {t('workloads')}</a>
      </p>
      <h1>
        {explained
          ? explained.waits
            ? t('explainWaits', name)
            : explained.node
              ? t('explainPlaced', name, explained.node)
              : t('explainPlacedHidden', name)
          : name}
      </h1>
      {loaded.error && !ended && <ErrorNote message={loaded.error} />}
      {(explained || ended) && (
        <section aria-labelledby="run">
          <h2 id="run">{t('run')}</h2>
          <RunView loaded={run} namespace={namespace} />
        </section>
      )}
      {explained && (
        <>
          <h2>{t('placement')}</h2>
          <dl class="facts">
            <dt>{t('namespace')}</dt>
            <dd>{namespace}</dd>
            <dt>{t('request')}</dt>
            <dd>{explained.request || '–'}</dd>
          </dl>
          {explained.gates.length > 0 && <p class="note">{t('gatesHold', explained.gates.join(', '))}</p>}
          {explained.invalid ? (
            <p class="note bad-note">
              <ServerText text={explained.invalid} />
            </p>
          ) : (
            <>
              <Reasons fit={explained} namespace={namespace} waits={explained.waits && explained.gates.length === 0} />
              <Insight namespace={namespace} name={name} fit={explained} waits={explained.waits} />
            </>
          )}
        </>
      )}
    </>
  );
}
