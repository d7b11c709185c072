/* child.c: see child.h. */
#include "child.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "signals.h"

extern char **environ;

/* ---- start ---- */

static bool same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");
	return strncmp(a, b, n + 1) == 0;
}

static char **environment_with(char *const more[])
{
	size_t n = 0, m = 0, k = 0;
	char **ret;
	while (environ[n])
		n++;
	while (more[m])
		m++;
	ret = mem_zalloc((n + m + 1) * sizeof(ret[0]));
	for (size_t i = 0; i < n; i++) {
		bool replaced = false;
		for (size_t j = 0; j < m; j++)
			replaced |= same_name(more[j], environ[i]);
		if (!replaced)
			ret[k++] = environ[i];
	}
	memcpy(ret + k, more, m * sizeof(ret[0]));
	return ret;
}

/* Between fork and exec: only what is safe there. */
static _Noreturn void become(char *const argv[], char **environment, int tell, pid_t parent)
{
	int e;
	signals_reset_in_child();
	if (getppid() == parent) {
		execvpe(argv[0], argv, environment);
		e = errno;
		if (write(tell, &e, sizeof(e)) != sizeof(e))
			_exit(126);
	}
	_exit(127);
}

int child_start(struct child *c, char *const argv[], char *const environment[])
{
	int fds[2], e = 0;
	pid_t parent = getpid();
	char **env = environment_with(environment);
	ssize_t n;
	*c = (struct child){ .pid = -1 };
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (pipe2(fds, O_CLOEXEC) < 0) {
		e = errno;
		goto out;
	}
	c->pid = fork();
	if (c->pid == 0)
		become(argv, env, fds[1], parent);
	e = c->pid < 0 ? errno : 0;
	close(fds[1]);
	/* Closed by a successful exec. */
	do
		n = e ? 0 : read(fds[0], &e, sizeof(e));
	while (n < 0 && errno == EINTR);
	close(fds[0]);
	if (e && c->pid > 0)
		waitpid(c->pid, NULL, 0);
out:
	free(env);
	return e;
}

void child_reap(struct child *c)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == c->pid) {
			c->over = true;
			c->status = status;
		}
	}
}

bool child_any_left(void)
{
	siginfo_t info;
	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

int child_exit_code(const struct child *c)
{
	return WIFSIGNALED(c->status) ? 128 + WTERMSIG(c->status) : WEXITSTATUS(c->status);
}

/* ---- everybody below us ---- */

struct process {
	pid_t pid, parent;
	bool ours;
};

struct processes {
	struct process *list;
	size_t len, cap;
};

/* The parent's ID, the second field after the name, which is in parentheses and may hold anything. */
static pid_t parent_of(const char *pid)
{
	char path[64], text[512], *end;
	int fd, parent = 0;
	ssize_t n;
	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	end = strrchr(text, ')');
	if (!end || sscanf(end + 1, " %*c %d", &parent) != 1)
		return 0;
	return parent;
}

static void read_processes(struct processes *ps)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	while (d && (e = readdir(d))) {
		struct process p = { .parent = 0 };
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		p.pid = (pid_t)strtol(e->d_name, NULL, 10);
		p.parent = parent_of(e->d_name);
		p.ours = p.parent == getpid();
		if (ps->len == ps->cap) {
			ps->cap = ps->cap ? ps->cap * 2 : 256;
			ps->list = mem_realloc(ps->list, ps->cap * sizeof(ps->list[0]));
		}
		ps->list[ps->len++] = p;
	}
	if (d)
		closedir(d);
}

static bool is_ours(const struct processes *ps, pid_t pid)
{
	for (size_t i = 0; i < ps->len; i++) {
		if (ps->list[i].pid == pid)
			return ps->list[i].ours;
	}
	return false;
}

static void mark_descendants(struct processes *ps)
{
	bool changed = true;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < ps->len; i++) {
			struct process *p = &ps->list[i];
			if (!p->ours && p->parent > 1 && is_ours(ps, p->parent))
				changed = p->ours = true;
		}
	}
}

void child_signal_all(int signo)
{
	struct processes ps = { .len = 0 };
	read_processes(&ps);
	mark_descendants(&ps);
	for (size_t i = 0; i < ps.len; i++) {
		if (ps.list[i].ours)
			kill(ps.list[i].pid, signo);
	}
	free(ps.list);
}
