"""Certificates and kubeconfig files of a cluster."""

from session.program import run

API = "https://192.0.2.2:6443"
EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
SERVER_NAMES = ("IP:192.0.2.2,IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:node,DNS:kubernetes,DNS:kubernetes.default,"
                "DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local")


class Credentials:
    """The files of a directory: `<name>.crt`, `<name>.key`, `<name>.conf`; one certificate authority signs all of them."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir(mode=0o700)
        run("openssl", "req", "-x509", *EC, "-days", "30", "-keyout", self.path("ca.key"), "-out", self.path("ca.crt"), "-subj", "/CN=test-ca").check()
        run("openssl", "genrsa", "-out", self.path("accounts.key"), "2048").check()
        run("openssl", "rsa", "-in", self.path("accounts.key"), "-pubout", "-out", self.path("accounts.pub")).check()
        self._sign("apiserver", "/CN=kube-apiserver", SERVER_NAMES)
        self._sign("aggregator", "/CN=aggregator")
        for name, subject in (("admin", "/O=system:masters/CN=admin"), ("kubelet", "/O=system:nodes/CN=system:node:node")):
            self._sign(name, subject)
            self._kubeconfig(name)

    def path(self, name):
        return self.directory / name

    def _sign(self, name, subject, names=None):
        request, extensions = self.path(f"{name}.csr"), self.path(f"{name}.extensions")
        extensions.write_text("extendedKeyUsage=serverAuth,clientAuth\n" + (f"subjectAltName={names}\n" if names else ""))
        run("openssl", "req", *EC, "-keyout", self.path(f"{name}.key"), "-out", request, "-subj", subject).check()
        run("openssl", "x509", "-req", "-in", request, "-CA", self.path("ca.crt"), "-CAkey", self.path("ca.key"), "-CAcreateserial",
            "-days", "30", "-extfile", extensions, "-out", self.path(f"{name}.crt")).check()

    def _kubeconfig(self, name):
        self.path(f"{name}.conf").write_text(f"""apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "{API}", certificate-authority: {self.path("ca.crt")}}}}}]
users: [{{name: {name}, user: {{client-certificate: {self.path(name + ".crt")}, client-key: {self.path(name + ".key")}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: {name}}}}}]
""")
