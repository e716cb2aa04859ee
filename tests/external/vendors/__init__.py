"""CNI plugins of other projects, run by Pinion.

    programs.py      builds the plugins and what configures their datastores
    node.py          a Pinion whose network is a list of such a plugin, its pods, and what exists on the node
    links.py         network namespaces, and a link to another node
    etcd.py          the datastore
    flannel.py       flannel's daemon on two nodes, its plugin, and Pinion's own type `flannel`
    differential.py  flannel's plugin and `pinion-cni` with the same input
    calico.py        Calico's plugin and calico-ipam
    cilium.py        Cilium's plugin without an agent, and with a stand-in for it
    agent.py         the stand-in for Cilium's agent
"""
