/* notify.h: what systemd, or whoever set NOTIFY_SOCKET, is told. Nothing happens without it. One thread. */
#ifndef HOLDFAST_MAIN_NOTIFY_H
#define HOLDFAST_MAIN_NOTIFY_H

#include <stdint.h>

/* Lines as sd_notify(3) has them, such as "READY=1\nSTATUS=serving". What cannot be told is not told: the service is more important. */
void notify_send(const char *lines);
/* Half of the time within which the watchdog wants to hear from this process; 0: there is none. */
uint64_t notify_watchdog_ms(void);

#endif
