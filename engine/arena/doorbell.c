/* SPDX-License-Identifier: BSD-3-Clause */
/* Doorbells, and local names. */
#include "engine/arena/doorbell.h"
#include "engine/arena/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { RINGS_AT_ONCE = 64 };

struct rf_doorbell {
	struct rf_watch watch; /* first */
	int fd;
	uint8_t name[RF_DOORBELL_NAME_BYTES];
};

_Static_assert((int)RF_DOORBELL_NAME_BYTES == (int)RF_LOCAL_NAME_BYTES, "a doorbell has a name");

int rf_local_random(void *bytes, size_t count)
{
	return getrandom(bytes, count, 0) == (ssize_t)count ? RF_OK : RF_ERR_SYSTEM;
}

int rf_local_name(uint8_t name[RF_LOCAL_NAME_BYTES])
{
	static const char prefix[] = "ringfold-", digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
	size_t at = sizeof(prefix) - 1;
	int status = rf_local_random(name, RF_LOCAL_NAME_BYTES);

	memcpy(name, prefix, at);
	for (; at < RF_LOCAL_NAME_BYTES; at++)
		name[at] = (uint8_t)digits[name[at] % 32];
	return status;
}

socklen_t rf_local_address(const uint8_t name[RF_LOCAL_NAME_BYTES], struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path + 1, name, RF_LOCAL_NAME_BYTES);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + RF_LOCAL_NAME_BYTES);
}

/* Its only purpose was to end a sleep. */
static void rung(struct rf_watch *watch, unsigned events)
{
	const struct rf_doorbell *bell = (struct rf_doorbell *)watch;
	uint8_t byte;

	(void)events;
	/* A stranger may ring faster than this: what is left wakes again, after the others' turn.
	 */
	for (int i = 0; i < RINGS_AT_ONCE; i++) {
		if (recv(bell->fd, &byte, sizeof(byte), MSG_DONTWAIT) < 0)
			return;
	}
}

static int doorbell_open(rf_context *context, struct rf_doorbell *bell)
{
	struct sockaddr_un address;
	socklen_t length;
	int status = rf_local_name(bell->name);

	if (status != RF_OK)
		return status;
	length = rf_local_address(bell->name, &address);
	bell->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bell->fd < 0)
		return RF_ERR_SYSTEM;
	bell->watch.ready = rung;
	if (bind(bell->fd, (struct sockaddr *)&address, length) == 0 &&
	    context->net->ops->watch_fd(context->net, bell->fd, RF_NET_DATA, &bell->watch,
					RF_NET_IN) == RF_OK)
		return RF_OK;
	close(bell->fd);
	return RF_ERR_SYSTEM;
}

int rf_doorbell_get(rf_context *context, uint8_t name[RF_DOORBELL_NAME_BYTES])
{
	if (!context->doorbell) {
		struct rf_doorbell *bell = calloc(1, sizeof(*bell));
		int status = bell ? doorbell_open(context, bell) : RF_ERR_NOMEM;

		if (status != RF_OK) {
			free(bell);
			return status;
		}
		context->doorbell = bell;
	}
	memcpy(name, context->doorbell->name, RF_DOORBELL_NAME_BYTES);
	return RF_OK;
}

void rf_doorbell_ring(rf_context *context, const uint8_t name[RF_DOORBELL_NAME_BYTES])
{
	struct sockaddr_un address;
	socklen_t length = rf_local_address(name, &address);

	/* A sleeper that is gone needs no bell. */
	(void)!sendto(context->doorbell->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
		      (struct sockaddr *)&address, length);
}

void rf_doorbell_close(rf_context *context)
{
	struct rf_doorbell *bell = context->doorbell;

	if (!bell)
		return;
	context->net->ops->watch_fd(context->net, bell->fd, RF_NET_DATA, &bell->watch, 0);
	close(bell->fd);
	free(bell);
	context->doorbell = NULL;
}

void rf_doorbell_abandon(rf_context *context)
{
	if (context->doorbell)
		close(context->doorbell->fd);
}
