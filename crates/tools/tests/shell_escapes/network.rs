//! Sockets, of every family: none.

use std::{
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
};

use crate::stage::each_tier;

#[test]
fn nobody_can_be_reached() {
    each_tier(|stage| {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let inside = stage.root.join("socket");
        let by_path = UnixListener::bind(&inside).unwrap();
        std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(0o777)).unwrap();
        by_path.set_nonblocking(true).unwrap();
        let name = format!("tollgate-escape-{}-{:?}", std::process::id(), stage.user);
        let by_name =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        by_name.set_nonblocking(true).unwrap();
        let output = stage.python(&format!(
            "import socket, ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef attempt(what, f):\n  try:\n    f(); print('OUT', what)\n  except OSError as e: print('refused', what)\n\
             s = socket\n\
             attempt('tcp', lambda: s.create_connection(('127.0.0.1', {tcp}), 1))\n\
             attempt('udp', lambda: s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp})))\n\
             attempt('tcp6', lambda: s.socket(s.AF_INET6))\n\
             attempt('unix', lambda: s.socket(s.AF_UNIX).connect('socket'))\n\
             attempt('abstract', lambda: s.socket(s.AF_UNIX).connect('\\0{name}'))\n\
             attempt('pair', lambda: s.socketpair())\n\
             attempt('raw', lambda: s.socket(s.AF_INET, s.SOCK_RAW, 1))\n\
             attempt('packet', lambda: s.socket(s.AF_PACKET, s.SOCK_RAW))\n\
             attempt('netlink', lambda: s.socket(s.AF_NETLINK, s.SOCK_RAW))\n\
             attempt('vsock', lambda: s.socket(40, s.SOCK_STREAM))\n\
             attempt('alg', lambda: s.socket(38, s.SOCK_SEQPACKET))\n\
             attempt('name', lambda: s.getaddrinfo('localhost', 80) and s.create_connection(('localhost', {tcp}), 1))\n",
            tcp = tcp.local_addr().unwrap().port(),
            udp = udp.local_addr().unwrap().port(),
        ));
        assert_eq!(output.exit_code, Some(0), "{output:?}");
        assert_eq!(output.stdout.matches("refused").count(), 12, "{output:?}");
        assert!(tcp.accept().is_err(), "somebody came by TCP");
        assert!(udp.recv(&mut [0; 1]).is_err(), "somebody sent by UDP");
        assert!(by_path.accept().is_err() && by_name.accept().is_err(), "somebody came by a name");
    });
}
