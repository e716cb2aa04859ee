"""A Kubernetes cluster of one node in a session, and tests of it.

    programs.py       what is built, from which versions
    images.py         test images, made of programs of Kubernetes and of Debian packages
    credentials.py    certificates and kubeconfig files
    control_plane.py  etcd, API server, controller manager, scheduler
    node.py           kubelet and kube-proxy
    cluster.py        all of it together, and kubectl
    objects.py        manifests
    preparation.py    packages and programs, before the session starts
    addons.py         cluster DNS and metrics-server

    workloads.py      Deployments, Jobs, Services, volumes, probes and the other objects that users create
    streams.py        kubectl exec, cp, attach, logs, port-forward, debug, top
    limits.py         resize in place, eviction, 110 pods at once
    resources.py      devices, CDI, DRA, huge pages, CPU and memory managers, the evented PLEG
"""
