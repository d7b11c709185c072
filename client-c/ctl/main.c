/* main.c: holdfastctl: reads the line, connects, runs the command. */
#include <grpc/support/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "base/clock.h"
#include "help.h"
#include "login.h"
#include "signals.h"

static bool is_offline(const struct command *cmd)
{
	return cmd->function == command_help || cmd->function == command_version;
}

static int help_asked(const struct args *a)
{
	if (a->command)
		help_command(a->command);
	else
		help_all(a->words_len ? a->words[0] : NULL);
	return EXIT_DONE;
}

/* What the library would say on standard error is said by us. */
static void say_nothing(gpr_log_func_args *args)
{
	(void)args;
}

static int run(struct ctl *c, const struct security *security, struct login *login)
{
	int code = EXIT_DONE;
	gpr_set_log_function(say_nothing);
	signals_block();
	c->link = link_new(c->endpoints, c->endpoints_len, security);
	if (!c->link) {
		ctl_error("--cert: not a certificate with its key, or not one that can be used");
		return EXIT_USAGE;
	}
	signals_start(link_wake, c->link);
	link_log_in(c->link, login);
	if (login)
		code = login_first(login, c->link, boot_ms() + c->args.timeout_ms);
	if (code == EXIT_DONE)
		code = c->args.command->function(c);
	if (!out_flush() && code == EXIT_DONE)
		code = out_failed();
	signals_stop();
	link_free(c->link);
	return code;
}

/* Not in the list of commands: for the completion, and for who makes the man page. */
static bool hidden(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "help") == 0 && strcmp(argv[2], "--man") == 0) {
		help_man();
		return true;
	}
	if (argc >= 2 && strcmp(argv[1], "__words") == 0) {
		help_words((const char *const *)argv + 2, argc - 2);
		return true;
	}
	return false;
}

static const char *from_environment(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

int main(int argc, char **argv)
{
	struct ctl c = { .link = NULL };
	struct security security = { .roots = NULL };
	struct errmsg em = { .text = "" };
	struct login *login = NULL;
	char *name, *password;
	int code;
	if (hidden(argc, argv))
		return EXIT_DONE;
	args_init(&c.args, getenv("HOLDFAST_ENDPOINTS"));
	c.args.cacert = from_environment("HOLDFAST_CACERT");
	c.args.cert = from_environment("HOLDFAST_CERT");
	c.args.key = from_environment("HOLDFAST_KEY");
	c.args.user = from_environment("HOLDFAST_USER");
	if (!args_parse(&c.args, argc, argv, &em)) {
		ctl_error("%s", em.text);
		return EXIT_USAGE;
	}
	if (c.args.help)
		return help_asked(&c.args);
	c.out = (struct out){ .format = (enum output)c.args.output, .hex = c.args.hex };
	if (is_offline(c.args.command)) {
		code = c.args.command->function(&c);
		return out_flush() ? code : out_failed();
	}
	if (!args_endpoints(c.args.endpoints, security_asked(&c.args), c.endpoints, &c.endpoints_len, &em)) {
		ctl_error("--endpoints: %s", em.text);
		return EXIT_USAGE;
	}
	if (!security_load(&c.args, &security, &em)) {
		ctl_error("%s", em.text);
		endpoints_free(c.endpoints, c.endpoints_len);
		return EXIT_USAGE;
	}
	if (c.args.user) {
		if (!login_words(c.args.user, &name, &password)) {
			security_clear(&security);
			endpoints_free(c.endpoints, c.endpoints_len);
			return EXIT_USAGE;
		}
		login = login_new(name, password);
		free(name);
		login_wipe(password);
	}
	code = run(&c, &security, login);
	login_free(login);
	security_clear(&security);
	endpoints_free(c.endpoints, c.endpoints_len);
	return code;
}
