// SPDX-License-Identifier: Apache-2.0
// How to add a node to the cluster, and the nodes that have appeared since the page was opened.
import { useState } from 'preact/hooks';
import { t, type Key } from './i18n';
import { Empty } from './parts';
import { isOffered, useCluster, type Node } from './store';

const kSteps: [Key, Key, string][] = [
  ['joinDriver', 'joinDriverHint', 'nvidia-smi -L && systemctl is-active containerd'],
  ['joinToken', 'joinTokenHint', 'kubeadm token create --ttl 1h --print-join-command'],
  [
    'joinRun',
    'joinRunHint',
    'kubeadm join ADDRESS:6443 --token TOKEN \\\n  --discovery-token-ca-cert-hash sha256:HASH',
  ],
];

function stateOf(node: Node): string {
  if (node.problem) return node.problem;
  if (!node.ready) return t('notReady');
  const good = node.gpus.filter(isOffered).length;
  return t('joinedGpus', good, node.gpus.length, node.model || '–');
}

function NewNodes({ known }: { known: Set<string> }) {
  const { nodes } = useCluster();
  const added = [...nodes.values()].filter((node) => !known.has(node.name));
  return (
    <div role="status">
      {added.length === 0 && <p class="hint">{t('joinWaiting')}</p>}
      <ul class="plain">
        {added.map((node) => (
          <li key={node.name}>
            {node.ready && !node.problem && node.gpus.length > 0 ? '✓ ' : '… '}
            <a href={`#/node/${encodeURIComponent(node.name)}`}>{node.name}</a>: {stateOf(node)}
          </li>
        ))}
      </ul>
    </div>
  );
}

export function AddNodePage() {
  const { nodes, mayListNodes } = useCluster();
  const [known] = useState(() => new Set(nodes.keys()));
  if (!mayListNodes) return <Empty page title={t('forbiddenNodes')} hint={t('forbiddenNodesHint')} />;
  return (
    <>
      <p>
        <a href="#/">← {t('map')}</a>
      </p>
      <h1>{t('addNode')}</h1>
      <ol class="steps">
        {kSteps.map(([title, hint, command]) => (
          <li key={title}>
            <b>{t(title)}</b>
            <p class="hint">{t(hint)}</p>
            <pre tabIndex={0}>{command}</pre>
          </li>
        ))}
        <li>
          <b>{t('joinResult')}</b>
          <p class="hint">{t('joinResultHint')}</p>
          <NewNodes known={known} />
        </li>
      </ol>
    </>
  );
}
