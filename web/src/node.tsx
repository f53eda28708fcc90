// SPDX-License-Identifier: Apache-2.0
// One node: its GPUs with health and holders, and the links between them, drawn.
import { NodeActions } from './node_actions';
import { gpuText, memoryText } from './format';
import { t } from './i18n';
import { Bar, Empty, ErrorNote, Scroll, Table, useLoaded } from './parts';
import { ServerText } from './server_text';
import { api, cluster, hiddenPart, useCluster, type Gpu, type Node } from './store';
import { Usage } from './usage';

interface Details {
  details: { links: string[]; indices: number[]; cuda: number; notes: string[] };
}

const amountText = (milli: number, bytes: number) => `${gpuText(milli)} ${t('gpu')}, ${memoryText(bytes)}`;

function Holders({ gpu }: { gpu: Gpu }) {
  const hidden = hiddenPart(gpu);
  return (
    <ul class="plain">
      {gpu.held.map(([uid, milli, bytes, namespace]) => {
        const pod = cluster.pods.get(uid);
        const amount = amountText(milli, bytes);
        return (
          <li key={uid}>
            {pod ? (
              <a href={`#/workload/${encodeURIComponent(pod.namespace)}/${encodeURIComponent(pod.name)}`}>
                {pod.namespace}/{pod.name}
              </a>
            ) : namespace ? (
              t('podOf', namespace)
            ) : (
              t('hiddenHolder')
            )}{' '}
            ({amount})
          </li>
        );
      })}
      {(hidden.milli > 0 || hidden.bytes > 0) && (
        <li>
          {t('hiddenHolders')} ({amountText(hidden.milli, hidden.bytes)})
        </li>
      )}
    </ul>
  );
}

function GpuTable({ node }: { node: Node }) {
  return (
    <Table
      label={t('gpus')}
      columns={[t('gpu'), t('model'), t('health'), t('compute'), t('memory'), t('numa'), t('holders')]}
    >
      {node.gpus.map((gpu) => (
        <tr key={gpu.uuid}>
          <th scope="row" title={gpu.uuid}>
            {gpu.name}
            {gpu.slice ? ` (${gpu.slice})` : ''}
          </th>
          <td>{gpu.model}</td>
          <td>
            <span class={`pill ${gpu.state}`}>{t(gpu.state)}</span> <ServerText text={gpu.why} />
          </td>
          <td>
            <Bar part={gpu.usedMilli / 1000} label={`${gpuText(gpu.usedMilli)}/1`} />
          </td>
          <td>
            <Bar part={gpu.memory ? gpu.used / gpu.memory : 0} label={`${memoryText(gpu.used)}/${memoryText(gpu.memory)}`} />
          </td>
          <td>{gpu.numa ?? '–'}</td>
          <td>
            <Holders gpu={gpu} />
          </td>
        </tr>
      ))}
      {node.mig?.map((index) => (
        <tr key={`mig ${index}`}>
          <th scope="row">{index}</th>
          <td>{node.model}</td>
          <td colSpan={5}>
            <span class="pill withheld">MIG</span> {t('migHint', index)}
          </td>
        </tr>
      ))}
    </Table>
  );
}

// The count of NVLinks in a link of the topology: 12 in "NV12", 18 in "NVS18", 4 in "NV4+NODE"; else 0.
function nvlinks(link: string): number {
  const found = /^NVS?(\d+)/.exec(link);
  return found ? Number(found[1]) : 0;
}

function Topology({ links, indices }: { links: string[]; indices: number[] }) {
  if (links.length === 0) return <p>{t('noLinks')}</p>;
  const at = (a: number, b: number) => links[(Math.max(a, b) * (Math.max(a, b) - 1)) / 2 + Math.min(a, b)]!;
  const place = (i: number) => {
    const angle = (2 * Math.PI * i) / indices.length - Math.PI / 2;
    return [150 + 115 * Math.cos(angle), 150 + 115 * Math.sin(angle)] as const;
  };
  const pairs = indices.flatMap((_, a) => indices.slice(0, a).map((_, b) => [a, b] as const));
  return (
    <>
      <p class="hint">{t('topologyHint')}</p>
      <div class="topology">
        <svg viewBox="0 0 300 300" role="img" aria-label={t('topology')}>
          {pairs.map(([a, b]) => {
            const width = nvlinks(at(a, b));
            if (width === 0 && !['PIX', 'PXB', 'PHB', 'NODE', 'PSB'].includes(at(a, b))) return null;
            const [x1, y1] = place(a);
            const [x2, y2] = place(b);
            return (
              <line
                class={width > 0 ? 'nvlink' : 'pcie'}
                stroke-width={width > 0 ? 1.5 + width / 4 : 1}
                {...{ x1, y1, x2, y2 }}
              >
                <title>{`${indices[a]}–${indices[b]}: ${at(a, b)}`}</title>
              </line>
            );
          })}
          {indices.map((index, i) => {
            const [x, y] = place(i);
            return (
              <g>
                <circle cx={x} cy={y} r="17" />
                <text x={x} y={y + 5}>
                  {index}
                </text>
              </g>
            );
          })}
        </svg>
        <Scroll label={t('topology')}>
          <table class="matrix">
            <thead>
              <tr>
                <th scope="col">{t('gpu')}</th>
                {indices.map((index) => (
                  <th scope="col">{index}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {indices.map((index, a) => (
                <tr>
                  <th scope="row">{index}</th>
                  {indices.map((_, b) => (
                    <td class={a !== b && nvlinks(at(a, b)) > 0 ? 'nv' : ''}>{a === b ? '·' : at(a, b)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </div>
    </>
  );
}

export function NodePage({ name }: { name: string }) {
  const { nodes, mayListNodes } = useCluster();
  const node = nodes.get(name);
  const loaded = useLoaded(name, () => api<Details>(`/api/v1/nodes/${encodeURIComponent(name)}`));
  if (!mayListNodes) return <Empty page title={t('forbiddenNodes')} hint={t('forbiddenNodesHint')} />;
  if (!node) return <Empty page title={t('noNode', name)} />;
  const marks = [node.ready ? '' : t('notReady'), node.cordoned ? t('cordoned') : ''].filter(Boolean);
  return (
    <>
      <p>
        <a href="#/">← {t('map')}</a>
      </p>
      <h1>{name}</h1>
      <dl class="facts">
        <dt>{t('pool')}</dt>
        <dd>{node.pool || t('noPool')}</dd>
        <dt>{t('model')}</dt>
        <dd>{node.model || '–'}</dd>
        <dt>{t('driver')}</dt>
        <dd>{node.driver || '–'}</dd>
        <dt>{t('state')}</dt>
        <dd>{marks.join(', ') || '✓'}</dd>
        {node.problem && (
          <>
            <dt>{t('problem')}</dt>
            <dd class="alarm">
              <ServerText text={node.problem} />
            </dd>
          </>
        )}
      </dl>
      <h2>{t('gpus')}</h2>
      <GpuTable node={node} />
      <NodeActions node={node} />
      <Usage node={node} />
      <h2>{t('topology')}</h2>
      {loaded.error && <ErrorNote message={loaded.error} />}
      {loaded.data && <Topology {...loaded.data.details} />}
    </>
  );
}
