// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin for Slurm: every task of a job becomes a client of its node's divvyd.
 *
 * Slurm decides where and when a job runs, divvy how much of the node's CPU it has while it does. Once a task was forked,
 * and before it executes the user's program, `divvy attach --tree PID` is run as the job's user: with that user's ids and
 * groups and nothing of slurmstepd's, so that divvyd sees who asks and takes the client from what is that user's.
 *
 * Nothing here decides whether a job runs, unless `required=yes` says so. README.md has the options.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(divvy, 1)

/* As `SHARE_MAX` of divvyd's API. */
#define SHARE_MAX 1000000L
#define TIMEOUT_MS_MAX 60000L
/* What `divvy` may say, at most; more is cut. */
#define SAID_MAX 512
/* A task becomes its user's within microseconds; it is looked at again after so long. */
#define LOOK_AGAIN_NS 200000L

/* Before an account, in the name of what `divvy site sync` made of it. */
#define SITE_PREFIX "site."
/* divvy's exit code where there is no such currency. */
#define NO_SUCH 6

/* What the line of plugstack.conf says. */
static struct {
	const char *divvy;  /* the program */
	const char *socket; /* of the node's divvyd */
	long share;         /* of a job that does not say */
	long timeout_ms;    /* for one task */
	bool required;      /* a task that cannot be attached ends its step */
	bool accounts;      /* jobs are funded by their users' parts of their accounts */
	bool broken;        /* an argument cannot be used */
} conf = {
	.divvy = "/usr/bin/divvy",
	.socket = "/run/divvy/api.sock",
	.share = 1,
	.timeout_ms = 2000,
};

/* What `--divvy-share` said; 0 where it was not given. */
static long asked_share;

/* The whole of `text` as a number from `least` to `most`. */
static bool parse(const char *text, long least, long most, long *number)
{
	char *end;

	if (!text || !isdigit((unsigned char)*text))
		return false;
	errno = 0;
	long n = strtol(text, &end, 10);
	if (errno || *end || n < least || n > most)
		return false;
	*number = n;
	return true;
}

static bool parse_yes(const char *text, bool *yes)
{
	*yes = strcmp(text, "yes") == 0;
	return *yes || strcmp(text, "no") == 0;
}

static int on_share(int val, const char *arg, int remote)
{
	(void)val;
	(void)remote;
	if (parse(arg, 1, SHARE_MAX, &asked_share))
		return ESPANK_SUCCESS;
	slurm_error("divvy: --divvy-share=%s: give a whole number from 1 to %ld", arg ? arg : "", SHARE_MAX);
	return ESPANK_BAD_ARG;
}

static struct spank_option share_option = {
	.name = "divvy-share",
	.arginfo = "N",
	.usage = "share of the job among those of its user on each node, 1 to 1000000: "
		 "divvy divides the CPU in proportion to it",
	.has_arg = 1,
	.val = 0,
	.cb = on_share,
};

/*
 * What a step's tasks are to tell their user, from slurmstepd to them. slurmstepd's own words reach the user or not, as it
 * happens; and it takes a step whose plugins fail after the fork for one that exited with 0. So each task says it, and
 * ends where it may not run.
 */
static struct note {
	bool told;
	bool refused;
	uint32_t job;
	char why[SAID_MAX];
} *note;

/* The value of `arg` if it is `key=value`. */
static const char *value_of(const char *arg, const char *key)
{
	size_t n = strlen(key);

	return strncmp(arg, key, n) == 0 && arg[n] == '=' ? arg + n + 1 : NULL;
}

static bool read_arg(const char *arg)
{
	const char *value;

	if ((value = value_of(arg, "divvy"))) {
		conf.divvy = value;
		return *value == '/';
	}
	if ((value = value_of(arg, "socket"))) {
		conf.socket = value;
		return *value == '/';
	}
	if ((value = value_of(arg, "share")))
		return parse(value, 1, SHARE_MAX, &conf.share);
	if ((value = value_of(arg, "timeout_ms")))
		return parse(value, 1, TIMEOUT_MS_MAX, &conf.timeout_ms);
	if ((value = value_of(arg, "required")))
		return parse_yes(value, &conf.required);
	if ((value = value_of(arg, "accounts")))
		return parse_yes(value, &conf.accounts);
	return false;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	spank_context_t context = spank_context();

	/* Everywhere, so that a broken line shows where it is first read; whether it ends anything, `required` says. */
	for (int i = 0; i < ac; i++) {
		if (read_arg(av[i]))
			continue;
		slurm_error("divvy: plugstack.conf: %s: known are divvy=/PATH, socket=/PATH, share=1..%ld, "
			    "timeout_ms=1..%ld, required=yes|no, accounts=yes|no", av[i], SHARE_MAX, TIMEOUT_MS_MAX);
		conf.broken = true;
	}
	if (context == S_CTX_REMOTE) {
		note = mmap(NULL, sizeof(*note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (note == MAP_FAILED) {
			note = NULL;
			slurm_error("divvy: no memory to tell tasks anything: %s", strerror(errno));
			if (conf.required)
				return ESPANK_ERROR;
		}
	}
	if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE)
		return spank_option_register(sp, &share_option);
	return ESPANK_SUCCESS;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Whether process `pid` is `uid`'s alone: real, effective and saved. divvyd takes it for that user's only then. */
static bool is_users(pid_t pid, uid_t uid)
{
	char path[32], text[1024];
	unsigned int real, effective, saved;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	const char *line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u %u %u", &real, &effective, &saved) != 3)
		return false;
	return real == uid && effective == uid && saved == uid;
}

/* A task drops slurmstepd's privileges just before it waits for us: until it has, it is not its user's. */
static bool wait_for_user(pid_t pid, uid_t uid, long deadline_ms)
{
	const struct timespec pause = { .tv_nsec = LOOK_AGAIN_NS };

	while (!is_users(pid, uid)) {
		if (now_ms() >= deadline_ms)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/* Who owns the job. */
struct user {
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	int nr_groups;
};

/* In the child of a process with threads: only what is safe in a signal handler. Becomes the user for good and runs divvy. */
static void __attribute__((noreturn)) run_divvy(const struct user *user, char *const argv[], int said)
{
	char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL };
	static const char cannot_drop[] = "the job's user and groups cannot be taken on";
	static const char cannot_run[] = "the program cannot be executed; say where it is with divvy=/PATH";
	sigset_t none;

	int null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(said, 2) < 0)
		_exit(126);
	/* Nothing that slurmstepd has open is the user's to see. */
	if (syscall(SYS_close_range, 3U, ~0U, 0U) != 0)
		for (int fd = 3; fd < 65536; fd++)
			close(fd);
	for (int signal = 1; signal < NSIG; signal++)
		if (signal != SIGKILL && signal != SIGSTOP)
			sigaction(signal, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);

	if (setgroups((size_t)user->nr_groups, user->groups) || setresgid(user->gid, user->gid, user->gid) ||
	    setresuid(user->uid, user->uid, user->uid) || (user->uid != 0 && setresuid((uid_t)-1, 0, (uid_t)-1) == 0) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || chdir("/")) {
		(void)!write(2, cannot_drop, sizeof(cannot_drop) - 1);
		_exit(126);
	}
	execve(argv[0], argv, env);
	(void)!write(2, cannot_run, sizeof(cannot_run) - 1);
	_exit(127);
}

/* What came of `divvy attach`. */
struct attached {
	bool done;
	int code;           /* of divvy; -1 where it did not come to its end */
	char why[SAID_MAX]; /* where it is not done */
};

/* Reads what divvy says until it ends; kills it at the deadline. Its exit code, or -1 with the cause in `why`. */
static int wait_for_divvy(pid_t child, int said, long deadline_ms, char why[SAID_MAX])
{
	size_t len = 0;
	int status = 0;

	for (;;) {
		char *to = why + len, spare[64];
		struct pollfd pfd = { .fd = said, .events = POLLIN };
		long left = deadline_ms - now_ms();
		int ready = left > 0 ? poll(&pfd, 1, (int)left) : 0;
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0) {
			kill(child, SIGKILL);
			while (waitpid(child, &status, 0) < 0 && errno == EINTR)
				;
			snprintf(why, SAID_MAX, "no answer within %ld ms (timeout_ms)", conf.timeout_ms);
			return -1;
		}
		size_t room = SAID_MAX - 1 - len;
		ssize_t n = room ? read(said, to, room) : read(said, spare, sizeof(spare));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (room)
			len += (size_t)n;
	}
	/* Only the child had the other end: it has ended, or is about to. */
	while (waitpid(child, &status, 0) < 0) {
		if (errno != EINTR) {
			snprintf(why, SAID_MAX, "wait for divvy: %s", strerror(errno));
			return -1;
		}
	}
	why[len] = '\0';
	while (len && isspace((unsigned char)why[len - 1]))
		why[--len] = '\0';
	if (!WIFEXITED(status)) {
		snprintf(why, SAID_MAX, "divvy was ended by signal %d", WTERMSIG(status));
		return -1;
	}
	return WEXITSTATUS(status);
}

static struct attached attach(const struct user *user, char *const argv[], long deadline_ms)
{
	struct attached attached = { .done = false, .code = -1 };
	int said[2];

	if (pipe2(said, O_CLOEXEC) != 0) {
		snprintf(attached.why, SAID_MAX, "pipe: %s", strerror(errno));
		return attached;
	}
	pid_t child = fork();
	if (child == 0)
		run_divvy(user, argv, said[1]);
	close(said[1]);
	if (child < 0) {
		snprintf(attached.why, SAID_MAX, "fork: %s", strerror(errno));
	} else {
		int code = wait_for_divvy(child, said[0], deadline_ms, attached.why);
		attached.done = code == 0;
		attached.code = code;
		if (code > 0 && !attached.why[0])
			snprintf(attached.why, SAID_MAX, "divvy ended with %d", code);
	}
	close(said[0]);
	return attached;
}

/* What a step's clients are called on its node: slurm-JOB.STEP, and with several tasks .TASK. */
static bool name_client(spank_t sp, uint32_t job, uint32_t step, char *name, size_t size)
{
	uint32_t nr_tasks = 1;
	int task = 0;
	char which[16];

	if (step == SLURM_BATCH_SCRIPT)
		snprintf(which, sizeof(which), "batch");
	else if (step == SLURM_INTERACTIVE_STEP)
		snprintf(which, sizeof(which), "interactive");
	else
		snprintf(which, sizeof(which), "%u", step);
	if (spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS)
		return false;
	spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &nr_tasks);
	if (nr_tasks > 1)
		snprintf(name, size, "slurm-%u.%s.%d", job, which, task);
	else
		snprintf(name, size, "slurm-%u.%s", job, which);
	return true;
}

/* A task runs undivided, or not at all. No task of the step is let go before all of them have been here. */
static int go_without(uint32_t job, const char *why)
{
	slurm_info("divvy: job %u %s: %s", job, conf.required ? "does not run (required=yes)" : "runs undivided", why);
	if (!note)
		return conf.required ? ESPANK_ERROR : ESPANK_SUCCESS;
	note->job = job;
	snprintf(note->why, sizeof(note->why), "%s", why);
	/* What was asked for and is not had is told to the user; what only the site wants is in slurmd's log. */
	note->told = asked_share != 0;
	note->refused = conf.required;
	return ESPANK_SUCCESS;
}

/* In the task, as its user, before the user's program. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	(void)sp;
	(void)ac;
	(void)av;
	if (note && note->refused) {
		dprintf(2, "divvy: job %u may not run undivided here (required=yes): %s\n", note->job, note->why);
		_exit(1);
	}
	if (note && note->told)
		dprintf(2, "divvy: job %u runs undivided: %s\n", note->job, note->why);
	return ESPANK_SUCCESS;
}

int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	struct user user = { .nr_groups = 0 };
	struct attached attached = { .done = false };
	uint32_t job = 0, step;
	pid_t task = 0;
	char name[64], tree[16], share[16], number[16], account[128], from[sizeof(account) + sizeof(SITE_PREFIX)];
	char *argv[] = { (char *)conf.divvy, "attach", "--system", "--system-socket", (char *)conf.socket,
			 "--tree", tree, "--share", share, "--as", name, "--job", number, NULL, NULL, NULL };
	char **more = &argv[13];

	(void)ac;
	(void)av;
	if (spank_get_item(sp, S_JOB_ID, &job) || spank_get_item(sp, S_JOB_STEPID, &step) ||
	    spank_get_item(sp, S_TASK_PID, &task) || spank_get_item(sp, S_JOB_UID, &user.uid) ||
	    spank_get_item(sp, S_JOB_GID, &user.gid) ||
	    spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &user.groups, &user.nr_groups))
		return go_without(job, "Slurm does not say which process the task is, and whose");
	/* The step that only stands for the job on a node computes nothing. */
	if (step == SLURM_EXTERN_CONT)
		return ESPANK_SUCCESS;

	long deadline_ms = now_ms() + conf.timeout_ms;
	snprintf(number, sizeof(number), "%u", job);
	snprintf(share, sizeof(share), "%ld", asked_share ? asked_share : conf.share);
	if (conf.broken) {
		snprintf(attached.why, SAID_MAX, "its line in plugstack.conf cannot be used, see slurmd's log");
	} else if (!name_client(sp, job, step, name, sizeof(name))) {
		snprintf(attached.why, SAID_MAX, "Slurm does not say which of the step's tasks it is");
	} else if (!wait_for_user(task, user.uid, deadline_ms)) {
		snprintf(attached.why, SAID_MAX, "process %d did not become user %u's within %ld ms", (int)task,
			 (unsigned int)user.uid, conf.timeout_ms);
	} else {
		snprintf(tree, sizeof(tree), "%d", (int)task);
		/* slurmstepd sets it, whatever the user did. It only chooses among accounts that the user is in. */
		if (conf.accounts &&
		    spank_getenv(sp, "SLURM_JOB_ACCOUNT", account, sizeof(account)) == ESPANK_SUCCESS && account[0]) {
			snprintf(from, sizeof(from), SITE_PREFIX "%s", account);
			more[0] = "--from";
			more[1] = from;
		}
		attached = attach(&user, argv, deadline_ms);
		if (more[0] && attached.code == NO_SUCH) {
			slurm_info("divvy: %s: %s; the user's own currency pays", name, attached.why);
			more[0] = NULL;
			attached = attach(&user, argv, deadline_ms);
		}
	}
	if (attached.done) {
		slurm_info("divvy: %s: process %d attached for user %u, share %s of %s", name, (int)task,
			   (unsigned int)user.uid, share, more[0] ? from : "the user's own");
		return ESPANK_SUCCESS;
	}
	return go_without(job, attached.why);
}
