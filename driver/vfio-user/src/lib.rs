//! vfio-user protocol: messages, client and server.
