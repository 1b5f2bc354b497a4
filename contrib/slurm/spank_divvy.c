// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin for Slurm: every task of a job becomes a client of its node's divvyd.
 *
 * Slurm decides where and when a job runs, divvy how much of the node's CPU it has while it does. Once a task was forked,
 * and before it executes the user's program, `divvy attach --tree PID` is run as the job's user: with that user's ids and
 * groups and nothing of slurmstepd's, so that divvyd sees who asks and takes the client from what is that user's.
 *
 * For as long as the step runs, a thread keeps that so: it attaches the tasks anew where their divvyd was away or has begun
 * anew, and has them paused while Slurm has the step suspended.
 *
 * Nothing here decides whether a job runs, unless `required=yes` says so. README.md has the options.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(divvy, 1)

/* What this plugin expects of divvy: `PLUGIN_INTERFACE` of divvy's API. One of another is refused, and the log says so. */
#ifndef INTERFACE
#define INTERFACE 1
#endif
#define TEXT_OF(n) #n
#define TEXT(n) TEXT_OF(n)

/* As `SHARE_MAX` of divvyd's API. */
#define SHARE_MAX 1000000L
#define TIMEOUT_MS_MAX 60000L
/* What `divvy` may say, at most; more is cut. */
#define SAID_MAX 512
/* A task becomes its user's within microseconds; it is looked at again after so long. */
#define LOOK_AGAIN_NS 200000L

/* Before an account, in the name of what `divvy site sync` made of it. */
#define SITE_PREFIX "site."
/* divvy's exit codes: the arguments cannot be used (so for what is a client already), and there is no such currency or client. */
#define UNUSABLE 2
#define NO_SUCH 6
/* The step's tasks are looked after so often; one that could not be attached is tried again after so long. */
#define WATCH_MS 500L
#define TRY_AGAIN_MS 4000L
/* What so many copies of a requeued job have left behind is paused. */
#define COPIES_MAX 8UL

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
static void __attribute__((noreturn)) become_divvy(const struct user *user, char *const argv[], int said)
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

/*
 * In the child of a process with threads, in a process group of its own: runs divvy and writes how that ended, as one byte.
 * slurmstepd waits for any child that ends while its tasks run, and would have taken divvy's status for nobody's.
 */
static void __attribute__((noreturn)) run_divvy(const struct user *user, char *const argv[], int said, int ended)
{
	unsigned char code = 255;
	int status = 0;

	setpgid(0, 0);
	pid_t divvy = fork();
	if (divvy == 0)
		become_divvy(user, argv, said);
	close(said);
	if (divvy > 0) {
		while (waitpid(divvy, &status, 0) < 0 && errno == EINTR)
			;
		if (WIFEXITED(status))
			code = (unsigned char)WEXITSTATUS(status);
	}
	(void)!write(ended, &code, 1);
	_exit(0);
}

/* What came of `divvy attach`. */
struct attached {
	bool done;
	int code;           /* of divvy; -1 where it did not come to its end */
	char why[SAID_MAX]; /* where it is not done */
};

/* Reads what divvy says until it ends; kills it at the deadline. Its exit code, or -1 with the cause in `why`. */
static int wait_for_divvy(pid_t child, int said, int ended, long deadline_ms, char why[SAID_MAX])
{
	unsigned char code = 255;
	size_t len = 0;
	int result;

	for (;;) {
		char *to = why + len, spare[64];
		struct pollfd pfd = { .fd = said, .events = POLLIN };
		long left = deadline_ms - now_ms();
		int ready = left > 0 ? poll(&pfd, 1, (int)left) : 0;
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0) {
			kill(-child, SIGKILL);
			kill(child, SIGKILL);
			len = (size_t)snprintf(why, SAID_MAX, "no answer within %ld ms (timeout_ms)", conf.timeout_ms);
			result = -1;
			goto out;
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
	why[len] = '\0';
	while (len && isspace((unsigned char)why[len - 1]))
		why[--len] = '\0';
	/* Only divvy and who waits for it had the other ends: it has ended, or is about to. */
	ssize_t n;
	while ((n = read(ended, &code, 1)) < 0 && errno == EINTR)
		;
	result = n == 1 && code != 255 ? code : -1;
	if (result < 0)
		snprintf(why, SAID_MAX, "divvy was killed, or could not be started");
out:
	/* slurmstepd may have waited for it before us. */
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return result;
}

/* Runs divvy as `user`. */
static struct attached ask_divvy(const struct user *user, char *const argv[], long deadline_ms)
{
	struct attached attached = { .done = false, .code = -1 };
	int said[2], ended[2];

	if (pipe2(said, O_CLOEXEC) != 0) {
		snprintf(attached.why, SAID_MAX, "pipe: %s", strerror(errno));
		return attached;
	}
	if (pipe2(ended, O_CLOEXEC) != 0) {
		snprintf(attached.why, SAID_MAX, "pipe: %s", strerror(errno));
		close(said[0]);
		close(said[1]);
		return attached;
	}
	pid_t child = fork();
	if (child == 0)
		run_divvy(user, argv, said[1], ended[1]);
	close(said[1]);
	close(ended[1]);
	if (child < 0) {
		snprintf(attached.why, SAID_MAX, "fork: %s", strerror(errno));
	} else {
		attached.code = wait_for_divvy(child, said[0], ended[0], deadline_ms, attached.why);
		attached.done = attached.code == 0;
		if (attached.code > 0 && !attached.why[0])
			snprintf(attached.why, SAID_MAX, "divvy ended with %d", attached.code);
	}
	close(said[0]);
	close(ended[0]);
	return attached;
}

/* One task of the step, and what it takes to make it a client. */
struct task {
	struct task *next;
	struct user user;
	pid_t pid;
	uint32_t job;
	char name[64], tree[16], share[16], number[16];
	char from[128 + sizeof(SITE_PREFIX)]; /* the currency that pays; empty for the user's own */
	bool paused;           /* divvy was asked to, for Slurm has suspended the step */
	bool told;             /* that it could not be attached is in the log */
	struct timespec began; /* its divvyd, when it was attached */
	long not_before_ms;
};

static struct task *tasks;
static pthread_t watcher;
static bool watching, stopping;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

/* Makes a task a client: of its user's part of its account, or of what is the user's own where there is none. */
static struct attached attach(struct task *task, long deadline_ms)
{
	char *argv[] = { (char *)conf.divvy, "attach", "--system", "--system-socket", (char *)conf.socket,
			 "--plugin", TEXT(INTERFACE), "--tree", task->tree, "--share", task->share, "--as", task->name, "--job",
			 task->number, task->from[0] ? "--from" : NULL, task->from, NULL };
	struct attached attached = ask_divvy(&task->user, argv, deadline_ms);

	if (task->from[0] && attached.code == NO_SUCH) {
		slurm_info("divvy: %s: %s; the user's own currency pays", task->name, attached.why);
		argv[15] = NULL;
		attached = ask_divvy(&task->user, argv, deadline_ms);
		if (attached.done)
			task->from[0] = '\0';
	}
	/* One of before there was an interface does not know the option, or the word. */
	if (attached.code == UNUSABLE && strstr(attached.why, "plugin") && !strstr(attached.why, "interface"))
		snprintf(attached.why, SAID_MAX, "divvy or divvyd is older than the plugin, which has interface " TEXT(INTERFACE)
			 ": install all of one release on this node");
	return attached;
}

/* `divvy pause` or `divvy resume`, of a client of the task's user. */
static struct attached say(const struct task *task, const char *what, const char *name)
{
	char *argv[] = { (char *)conf.divvy, (char *)what, "--system", "--system-socket", (char *)conf.socket, (char *)name,
			 NULL };

	return ask_divvy(&task->user, argv, now_ms() + conf.timeout_ms);
}

/* When the node's divvyd began, as far as its socket tells; `false` where there is none. */
static bool divvyd_began(struct timespec *began)
{
	struct stat st;

	if (stat(conf.socket, &st) != 0)
		return false;
	*began = st.st_ctim;
	return true;
}

/* Attaches a task anew, where its divvyd is another than the one that it was attached to, or the first. */
static void keep_attached(struct task *task)
{
	struct timespec began;

	if (now_ms() < task->not_before_ms || !divvyd_began(&began) ||
	    (began.tv_sec == task->began.tv_sec && began.tv_nsec == task->began.tv_nsec))
		return;
	struct attached attached = attach(task, now_ms() + conf.timeout_ms);
	/* One that began anew finds whom it divided before by itself. */
	bool known = attached.code == UNUSABLE && strstr(attached.why, " already");
	if (!attached.done && !known) {
		task->not_before_ms = now_ms() + TRY_AGAIN_MS;
		if (!task->told)
			slurm_info("divvy: job %u still runs undivided: %s", task->job, attached.why);
		task->told = true;
		return;
	}
	task->began = began;
	task->told = task->paused = false;
	if (attached.done)
		slurm_info("divvy: %s: process %d attached now, for user %u", task->name, (int)task->pid,
			   (unsigned int)task->user.uid);
}

/* Slurm stops each process of a suspended step by a signal, of which divvy, which stops and resumes them too, may miss one. */
static void keep_paused(struct task *task, bool suspended)
{
	if (task->paused == suspended || !task->began.tv_sec)
		return;
	struct attached said = say(task, suspended ? "pause" : "resume", task->name);
	if (said.done || said.code == NO_SUCH)
		task->paused = suspended;
	if (said.done)
		slurm_info("divvy: %s: %s, as Slurm has its step", task->name, suspended ? "paused" : "resumed");
}

/* Whether Slurm has the step suspended: what slurmstepd's accounting goes by. It is set two seconds before the signals. */
static bool (*is_suspended)(void);

static void *watch(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	while (!stopping) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += WATCH_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_cond_timedwait(&wake, &lock, &until);
		struct task *task = tasks;
		pthread_mutex_unlock(&lock);
		/* Tasks come at the head, and go only when this thread has ended. */
		for (; task && !__atomic_load_n(&stopping, __ATOMIC_RELAXED); task = task->next) {
			if (kill(task->pid, 0) != 0)
				continue;
			keep_attached(task);
			keep_paused(task, is_suspended && is_suspended());
		}
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Looks after `task` from now on. */
static void look_after(struct task *task)
{
	sigset_t all, before;

	pthread_mutex_lock(&lock);
	task->next = tasks;
	tasks = task;
	pthread_mutex_unlock(&lock);
	if (watching)
		return;
	*(void **)&is_suspended = dlsym(RTLD_DEFAULT, "acct_gather_suspend_test");
	if (!is_suspended)
		slurm_info("divvy: this Slurm does not tell plugins that a step is suspended: of a job of many processes "
			   "`scontrol suspend` may miss one; `divvy pause` does not");
	/* Signals are slurmstepd's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&watcher, NULL, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	watching = failed == 0;
	if (failed)
		slurm_error("divvy: no thread to look after the step: %s", strerror(failed));
}

/* Before the plugin is unloaded. */
int slurm_spank_exit(spank_t sp, int ac, char **av)
{
	(void)sp;
	(void)ac;
	(void)av;
	if (!watching)
		return ESPANK_SUCCESS;
	pthread_mutex_lock(&lock);
	__atomic_store_n(&stopping, true, __ATOMIC_RELAXED);
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&lock);
	pthread_join(watcher, NULL);
	watching = false;
	return ESPANK_SUCCESS;
}

/*
 * What a step's clients are called on its node: slurm-JOB.STEP, and with several tasks .TASK; -rN where copies of the job before this
 * one have left clients behind.
 */
static bool name_client(spank_t sp, uint32_t job, uint32_t step, unsigned long nr_copies, char *name, size_t size)
{
	uint32_t nr_tasks = 1;
	int task = 0;
	char which[16], copy[24] = "";

	if (step == SLURM_BATCH_SCRIPT)
		snprintf(which, sizeof(which), "batch");
	else if (step == SLURM_INTERACTIVE_STEP)
		snprintf(which, sizeof(which), "interactive");
	else
		snprintf(which, sizeof(which), "%u", step);
	if (spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS)
		return false;
	spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &nr_tasks);
	if (nr_copies)
		snprintf(copy, sizeof(copy), "-r%lu", nr_copies);
	if (nr_tasks > 1)
		snprintf(name, size, "slurm-%u.%s.%d%s", job, which, task, copy);
	else
		snprintf(name, size, "slurm-%u.%s%s", job, which, copy);
	return true;
}

/* Whether divvy refused a task for the name's sake: another process is a client of that name. */
static bool name_is_taken(const struct attached *attached)
{
	return attached->code == UNUSABLE && strstr(attached->why, "there is a client '") != NULL;
}

/*
 * Makes a task that was just forked a client. Whoever has its name already was left behind by an earlier copy of the job, which was
 * queued anew: it is not Slurm's any more, and would have a part of the job's share. So it is paused, and the task has the next name.
 */
static struct attached attach_first(spank_t sp, struct task *task, uint32_t step, long deadline_ms)
{
	struct attached attached = attach(task, deadline_ms);

	for (unsigned long copy = 1; copy <= COPIES_MAX && name_is_taken(&attached); copy++) {
		if (say(task, "pause", task->name).done)
			slurm_info("divvy: %s: left behind by an earlier copy of job %u, paused", task->name, task->job);
		if (!name_client(sp, task->job, step, copy, task->name, sizeof(task->name)))
			break;
		attached = attach(task, now_ms() + conf.timeout_ms);
	}
	return attached;
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

/* What it takes to make the task that was just forked a client; `false` where Slurm does not say. */
static bool read_task(spank_t sp, struct task *task, uint32_t *step)
{
	char account[128];
	gid_t *groups = NULL;

	if (spank_get_item(sp, S_JOB_ID, &task->job) || spank_get_item(sp, S_JOB_STEPID, step) ||
	    spank_get_item(sp, S_TASK_PID, &task->pid) || spank_get_item(sp, S_JOB_UID, &task->user.uid) ||
	    spank_get_item(sp, S_JOB_GID, &task->user.gid) ||
	    spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &groups, &task->user.nr_groups))
		return false;
	/* They are Slurm's, which may free them before the step ends. */
	size_t size = (size_t)task->user.nr_groups * sizeof(*groups);
	task->user.groups = size ? malloc(size) : NULL;
	if (size && !task->user.groups)
		return false;
	if (size)
		memcpy(task->user.groups, groups, size);
	snprintf(task->number, sizeof(task->number), "%u", task->job);
	snprintf(task->tree, sizeof(task->tree), "%d", (int)task->pid);
	snprintf(task->share, sizeof(task->share), "%ld", asked_share ? asked_share : conf.share);
	/* slurmstepd sets it, whatever the user did. It only chooses among accounts that the user is in. */
	if (conf.accounts &&
	    spank_getenv(sp, "SLURM_JOB_ACCOUNT", account, sizeof(account)) == ESPANK_SUCCESS && account[0])
		snprintf(task->from, sizeof(task->from), SITE_PREFIX "%s", account);
	return true;
}

int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	struct attached attached = { .done = false };
	uint32_t step = 0;

	(void)ac;
	(void)av;
	struct task *task = calloc(1, sizeof(*task));
	if (!task || !read_task(sp, task, &step)) {
		uint32_t job = task ? task->job : 0;
		free(task);
		return go_without(job, "Slurm does not say which process the task is, and whose");
	}
	/* The step that only stands for the job on a node computes nothing. */
	if (step == SLURM_EXTERN_CONT) {
		free(task->user.groups);
		free(task);
		return ESPANK_SUCCESS;
	}

	long deadline_ms = now_ms() + conf.timeout_ms;
	if (conf.broken) {
		snprintf(attached.why, SAID_MAX, "its line in plugstack.conf cannot be used, see slurmd's log");
	} else if (!name_client(sp, task->job, step, 0, task->name, sizeof(task->name))) {
		snprintf(attached.why, SAID_MAX, "Slurm does not say which of the step's tasks it is");
	} else if (!wait_for_user(task->pid, task->user.uid, deadline_ms)) {
		snprintf(attached.why, SAID_MAX, "process %d did not become user %u's within %ld ms", (int)task->pid,
			 (unsigned int)task->user.uid, conf.timeout_ms);
	} else {
		struct timespec began = { 0 };
		divvyd_began(&began);
		attached = attach_first(sp, task, step, deadline_ms);
		if (attached.done)
			task->began = began;
	}
	if (attached.done)
		slurm_info("divvy: %s: process %d attached for user %u, share %s of %s", task->name, (int)task->pid,
			   (unsigned int)task->user.uid, task->share, task->from[0] ? task->from : "the user's own");
	else
		task->not_before_ms = now_ms() + TRY_AGAIN_MS;
	uint32_t job = task->job;
	bool keep = !conf.broken && task->name[0] && (attached.done || !conf.required);
	if (keep) {
		look_after(task);
	} else {
		free(task->user.groups);
		free(task);
	}
	return attached.done ? ESPANK_SUCCESS : go_without(job, attached.why);
}
