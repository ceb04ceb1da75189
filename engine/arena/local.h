/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets of this host, by abstract names: they have no file, and end with their process. */
#ifndef RF_LOCAL_H
#define RF_LOCAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { RF_LOCAL_NAME_BYTES = 32 }; /* letters and digits, without an end */

/* Random bytes for names, tokens and nonces: not to be guessed. */
int rf_local_random(void *bytes, size_t count);
/* A new name. */
int rf_local_name(uint8_t name[RF_LOCAL_NAME_BYTES]);
socklen_t rf_local_address(const uint8_t name[RF_LOCAL_NAME_BYTES], struct sockaddr_un *address);

#endif
