// SPDX-License-Identifier: Apache-2.0
// How pods run: their phase, their containers with restarts and with the reason if a container does not run, and
// Events. The page reads them while it is visible, with the user's own rights.
import { useEffect, useState } from 'preact/hooks';
import { ageText } from './format';
import { t, type Key } from './i18n';
import { ErrorNote, Table, type Loaded } from './parts';
import { ServerText } from './server_text';
import { api, podLink } from './store';

interface Exit {
  reason?: string;
  message?: string;
  exit?: number;
}

interface Container extends Exit {
  name: string;
  ready: boolean;
  restarts: number;
  init?: boolean;
  state?: 'waiting' | 'running' | 'terminated';
  last?: Exit; // the exit before the last restart
}

export interface PodRun {
  namespace: string;
  name: string;
  phase: string;
  node: string;
  deleting: boolean;
  restarts: number;
  created: string;
  reason?: string;
  message?: string;
  containers: Container[];
}

interface Run {
  pods: PodRun[];
  events?: { type: string; reason: string; message: string; about: string; count: number; time: string }[];
  eventsDenied?: boolean;
}

const kReadIntervalMs = 3000;

// `query`: a pod, or a Deployment with the selector of its pods.
export function useRun(query: Record<string, string>): Loaded<Run> {
  const [run, setRun] = useState<Loaded<Run>>({});
  const path = `/api/v1/run?${new URLSearchParams(query)}`;
  useEffect(() => {
    let current = true;
    let timer = 0;
    const load = async () => {
      if (!document.hidden) {
        const next = await api<Run>(path).then(
          (data): Loaded<Run> => ({ data }),
          (failure: Error) => ({ error: failure.message, failure }),
        );
        // An error keeps the last answer on the page.
        if (current) setRun((last) => (next.error ? { ...next, data: last.data } : next));
      }
      if (current) timer = window.setTimeout(load, kReadIntervalMs);
    };
    void load();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [path]);
  return run;
}

const ageOf = (time: string) => ageText(Date.parse(time) / 1000);

// For example "OOMKilled (exit code 137)".
function exitText({ reason, exit }: Exit): string {
  const code = exit === undefined ? '' : t('exitCode', exit);
  return reason && code ? `${reason} (${code})` : (reason ?? code);
}

function stateText(container: Container): string {
  if (container.state === 'running') return t('containerRunning');
  return exitText(container) || t(container.state === 'waiting' ? 'waiting' : 'containerUnknown');
}

function isBad(container: Container): boolean {
  if (container.state === 'terminated') return (container.exit ?? 0) !== 0;
  return container.state === 'waiting' && !['ContainerCreating', 'PodInitializing'].includes(container.reason ?? '');
}

const readyText = (pod: PodRun) => {
  const main = pod.containers.filter((one) => !one.init);
  return main.length > 0 ? `${main.filter((one) => one.ready).length}/${main.length}` : '–';
};

const kPhases: Record<string, string> = { Pending: 'waiting', Running: 'bound', Succeeded: 'bound', Failed: 'unhealthy' };

export function Phase({ pod }: { pod: PodRun }) {
  const phase = pod.phase in kPhases ? pod.phase : 'Unknown';
  return pod.deleting ? (
    <span class="pill deleting">{t('deleting')}</span>
  ) : (
    <span class={`pill ${kPhases[phase] ?? ''}`}>{t(`phase:${phase}` as Key)}</span>
  );
}

// Why a pod does not run as it should, in one line.
export function reasonOf(pod: PodRun): string {
  const bad = pod.containers.filter(isBad);
  const reasons = [pod.reason, ...bad.map(stateText)];
  if (bad.length === 0) for (const one of pod.containers) if (one.last) reasons.push(t('lastExit', exitText(one.last)));
  return [...new Set(reasons.filter(Boolean))].join(', ');
}

function Containers({ pod }: { pod: PodRun }) {
  return (
    <Table label={t('containersRun')} columns={[t('container'), t('state'), t('restarts'), t('why')]}>
      {pod.containers.map((one) => (
        <tr key={one.name}>
          <th scope="row">{one.name}</th>
          <td class={isBad(one) ? 'alarm' : ''}>{stateText(one)}</td>
          <td class="number">{one.restarts}</td>
          <td>
            {[one.message, one.last && t('lastExit', exitText(one.last)), one.last?.message].filter(Boolean).join(' – ')}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function Pods({ pods }: { pods: PodRun[] }) {
  return (
    <Table label={t('pods')} columns={[t('name'), t('phase'), t('ready'), t('restarts'), t('why')]}>
      {pods.map((pod) => (
        <tr key={pod.name}>
          <th scope="row">
            <a href={podLink(pod.namespace, pod.name)}>{pod.name}</a>
          </th>
          <td>
            <Phase pod={pod} />
          </td>
          <td class="number">{readyText(pod)}</td>
          <td class="number">{pod.restarts}</td>
          <td>{reasonOf(pod)}</td>
        </tr>
      ))}
    </Table>
  );
}

function Events({ run, namespace }: { run: Run; namespace: string }) {
  if (run.eventsDenied) return <p class="hint">{t('eventsDenied', namespace)}</p>;
  if (!run.events?.length) return <p class="hint">{t('noEvents')}</p>;
  return (
    <Table label={t('events')} columns={[t('ago'), t('event'), t('message')]}>
      {run.events.map((event) => (
        <tr key={`${event.reason} ${event.time} ${event.message}`}>
          <td class="number">{ageOf(event.time)}</td>
          <th scope="row" class={event.type === 'Warning' ? 'alarm' : ''}>
            {event.reason}
            {event.count > 1 ? ` ×${event.count}` : ''}
          </th>
          <td>
            <ServerText text={event.message} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

// `many`: shows all pods of a Deployment, instead of one pod with its containers.
export function RunView({ loaded, namespace, many }: { loaded: Loaded<Run>; namespace: string; many?: boolean }) {
  const run = loaded.data;
  if (!run) return loaded.error ? <ErrorNote message={loaded.error} /> : <p class="hint">{t('loadingRun')}</p>;
  const pod = run.pods[0];
  return (
    <>
      {!pod && <p class="hint">{t(many ? 'noPodsYet' : 'podGone')}</p>}
      {pod && many && <Pods pods={run.pods} />}
      {pod && !many && (
        <dl class="facts">
          <dt>{t('phase')}</dt>
          <dd>
            <Phase pod={pod} /> <ServerText text={[pod.reason, pod.message].filter(Boolean).join(': ')} />
          </dd>
          <dt>{t('ready')}</dt>
          <dd>{readyText(pod)}</dd>
          <dt>{t('restarts')}</dt>
          <dd>{pod.restarts}</dd>
        </dl>
      )}
      {pod && !many && pod.containers.length > 0 && <Containers pod={pod} />}
      <Events run={run} namespace={namespace} />
    </>
  );
}
