/* How threads sleep and wake: lib/wait without its time-outs, so that a lost wake-up is a deadlock.

   Each of COMMS communicators has SLOTS requests at a time, on streams of their own; there are one
   or two slots in all. The first THREADS slots are waited for by a thread each (wait_loop.h); the
   others are left to the service thread (ServiceThread::serve). All sleep on one doorbell (an
   eventfd) in the data reactor, the service thread on its own too. A peer ends the request of each
   slot ROUNDS times, in the last slot with MOVES moves each: it publishes, looks whether a thread
   has announced itself, and rings. With SOCKET the first slot's peer sends, and the thread that
   reads the socket publishes in its place. With ONE_FIRST no peer but one, of the first thread or
   of the last, moves anything before that thread is over, so that no ring for another thread
   replaces one that this thread has lost.

   Each of these leaves out what the protocol needs, and must lose a wake-up:
   LOOK_FIRST, NO_LOOK  the check precedes the announcement, or is left out (sleep.h)
   NOT_AGAIN            a thread sleeps although another was at its work when it announced itself
   NO_SINCE             a poll waits although another has drained the doorbell (reactor.h)
   COUNT_FIRST          a poll counts its round before the doorbell is drained
   NO_WAKE_SERVICE      a thread drains the doorbell and leaves a dozing service thread asleep
   NO_WAKE_SLEEPERS     a thread recalls or begins work and does not ring for others (waiting.h)
   COUNT_LATE           a sleeper counts itself after it announces
   NO_OWN               a thread sleeps on what it has read for itself (sleeper.h) */
#ifndef COMMS
#define COMMS 1
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef THREADS
#define THREADS (COMMS * SLOTS)
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef MOVES
#define MOVES 1
#endif
#define ALL (COMMS * SLOTS)
#define MOVES_OF(slot) (slot == ALL - 1 -> MOVES : 1)
#define SERVICE ALL /* as a thread's number, beside those of the slots */

/* Channels. announced: the thread that sleeps, plus one. */
byte turn[ALL], taken[ALL], announced[ALL];
bool owned[ALL];
#ifdef SOCKET
byte sent; /* to slot 0 */
bool reading;
#endif

/* Communicators: Waiting. */
byte pending[COMMS], waiters[COMMS], sleepers[COMMS];
#ifdef ONE_FIRST
byte first; /* the slot */
bool first_over;
#endif

/* Wakeups and the data reactor. counted: a round, since that thread asked for their number. */
bool doorbell, polling, service_doorbell, service_woken, dozing, counted[ALL];

/* ---- wakeups.h, reactor.h */

inline wake_service() {
    atomic {
        if
        :: service_woken
        :: !service_woken -> service_woken = true; service_doorbell = true
        fi
    }
}

#ifdef SOCKET
inline receive(me) {
    if
    :: atomic { !reading -> reading = true };
       do
       :: sent == 0 -> break
       :: sent > 0 ->
          d_step { sent--; turn[0]++ };
          d_step {
              if
              :: announced[0] == me + 1 -> own = true
              :: announced[0] != me + 1 && announced[0] != 0 -> doorbell = true
              :: announced[0] == 0
              fi
          }
       od;
       reading = false
    :: reading
    fi
}
#define RECEIVE(me) receive(me)
#define READABLE (doorbell || (sent > 0 && !reading)) /* else asked again and again */
#else
#define RECEIVE(me) skip
#define READABLE doorbell
#endif

inline count_round() {
    d_step { counted[0] = true; counted[ALL - 1] = true }
}

inline found(me) {
#ifdef COUNT_FIRST
    count_round();
    doorbell = false
#else
    doorbell = false;
    RECEIVE(me);
    count_round()
#endif
}

/* Reactor::poll(-1, since) of the data reactor. */
inline poll_data(me) {
    called = false;
    if
    :: atomic { !polling -> polling = true };
#ifndef NO_SINCE
       if
       :: counted[me] ->
          if
          :: READABLE -> found(me); called = true
          :: !READABLE
          fi
       :: !counted[me] -> READABLE; found(me); called = true
       fi;
#else
       READABLE; found(me); called = true;
#endif
       polling = false
    :: polling -> (!polling || counted[me]) /* wait_beside */
    fi
}

/* ---- waiting.h */

inline ring_for_sleepers(comm) {
    d_step {
        if
        :: sleepers[comm] > 0 -> doorbell = true
        :: else
        fi
    }
}

inline wake_sleepers(comm) {
#ifndef NO_WAKE_SLEEPERS
    ring_for_sleepers(comm)
#else
    skip
#endif
}

inline drive_slot(who, where, which) {
    if
    :: atomic { !owned[which] && taken[which] < turn[which] -> owned[which] = true };
       d_step {
           moved = true;
           over = (turn[which] % MOVES_OF(which) == 0);
           if
           :: over ->
              announced[which] = 0;
              if
              :: which >= THREADS && turn[which] == ROUNDS * MOVES_OF(which) -> pending[where]--
              :: else
              fi
           :: else
           fi;
           taken[which] = turn[which]
       };
       if
       :: over -> ring_for_sleepers(where)
       :: else
       fi;
       owned[which] = false
    :: else /* nothing, or another thread is at it */
    fi
}

inline announce_slot(who, which) {
    if
    :: atomic { !owned[which] -> owned[which] = true };
       d_step { announced[which] = who + 1; owned[which] = false }
    :: owned[which] -> busy = true
    fi
}

inline recall_slot(which) {
    if
    :: atomic { !owned[which] -> owned[which] = true };
       d_step { announced[which] = 0; owned[which] = false }
    :: owned[which]
    fi
}

#if SLOTS == 1
#define drive(me, comm) drive_slot(me, comm, comm); RECEIVE(me)
#define announce(me, comm) announce_slot(me, comm)
#define recall(comm) recall_slot(comm)
#else
#define drive(me, comm) \
    drive_slot(me, comm, 2 * comm); drive_slot(me, comm, 2 * comm + 1); RECEIVE(me)
#define announce(me, comm) announce_slot(me, 2 * comm); announce_slot(me, 2 * comm + 1)
#define recall(comm) recall_slot(2 * comm); recall_slot(2 * comm + 1)
#endif

/* ---- sleep.h and wait_loop.h: a thread of the program */

#define DONE (taken[slot] >= round * MOVES_OF(slot))

inline sleep(comm) {
#ifndef COUNT_LATE
    sleepers[comm]++;
#endif
    d_step { counted[slot] = false; own = false; busy = false; moved = false };
#ifdef LOOK_FIRST
    drive(slot, comm);
#endif
    announce(slot, comm);
#ifdef COUNT_LATE
    sleepers[comm]++;
#endif
#ifndef NOT_AGAIN
    moved = moved || busy;
#endif
#if !defined(LOOK_FIRST) && !defined(NO_LOOK)
    drive(slot, comm);
#endif
#ifndef NO_OWN
    moved = moved || own;
#endif
    if
    :: !moved && !DONE ->
       poll_data(slot);
#if !defined(NO_WAKE_SERVICE) && THREADS < ALL
       if
       :: called && dozing -> wake_service()
       :: else
       fi
#endif
    :: else
    fi;
    recall(comm);
    d_step {
        sleepers[comm]--;
        /* Of no use from here on: one state less. */
        counted[slot] = false; called = false; own = false; busy = false; moved = false
    }
}

proctype program(byte slot) {
    byte comm = slot / SLOTS, round = 1;
    bool moved, called, own, busy, slept, last, over;
    do
    :: round > ROUNDS -> break
    :: else ->
#if THREADS < ALL
       waiters[comm]++;
#endif
       do
       :: true ->
          drive(slot, comm);
          if
          :: DONE -> break
          :: else
          fi;
          moved = false;
          sleep(comm);
          slept = true
       od;
#if THREADS < ALL
       atomic { waiters[comm]--; last = (waiters[comm] == 0) };
       if
       :: last && pending[comm] > 0 -> wake_service()
       :: else
       fi;
#endif
       if
       :: slept -> slept = false; wake_sleepers(comm)
       :: else
       fi;
       round++
    od
#ifdef ONE_FIRST
    ;
    if
    :: slot == first -> first_over = true
    :: else
    fi
#endif
}

/* ---- service_thread.cpp */

inline drive_one(c) {
    if
    :: pending[c] > 0 && waiters[c] == 0 ->
       drive(SERVICE, c);
       busy_left = busy_left || pending[c] > 0
    :: else
    fi
}

inline announce_one(c) {
    if
    :: waiters[c] == 0 -> armed[c] = true; announce(SERVICE, c)
    :: else
    fi
}

inline recall_one(c) {
    if
    :: armed[c] -> armed[c] = false; recall(c); wake_sleepers(c)
    :: else
    fi
}

#if COMMS == 1
#define drive_left() busy_left = false; drive_one(0)
#define announce_left() announce_one(0)
#define recall_left() recall_one(0)
#else
#define drive_left() busy_left = false; drive_one(0); drive_one(1)
#define announce_left() announce_one(0); announce_one(1)
#define recall_left() recall_one(0); recall_one(1)
#endif

proctype service() {
    bool moved, own, busy, busy_left, over, armed[COMMS];
    do
    :: true ->
       d_step { service_woken = false; moved = false };
       drive_left();
       if
       :: !busy_left -> /* sleep_idle */
end_idle: service_doorbell -> service_doorbell = false
       :: busy_left && moved /* as Backoff: look again */
       :: busy_left && !moved ->
          d_step { dozing = true; own = false; busy = false };
#ifdef LOOK_FIRST
          drive_left();
#endif
          announce_left();
#ifndef NOT_AGAIN
          moved = busy;
#endif
#if !defined(LOOK_FIRST) && !defined(NO_LOOK)
          drive_left();
#endif
#ifndef NO_OWN
          moved = moved || own;
#endif
          if
          :: busy_left && !moved && !service_woken ->
             /* Wakes for its own doorbell, or because the data reactor's epoll is readable, which
                it then polls without waiting. */
end_doze:    if
             :: service_doorbell -> service_doorbell = false
             :: READABLE ->
                if
                :: atomic { !polling -> polling = true };
                   if
                   :: READABLE -> found(SERVICE)
                   :: else
                   fi;
                   polling = false
                :: polling
                fi
             fi
          :: else
          fi;
          dozing = false;
          recall_left();
          d_step { own = false; busy = false; moved = false }
       fi
    od
}

inline publish_all(slot) {
    move = 0;
#ifdef ONE_FIRST
    slot == first || first_over;
#endif
    do
    :: move == ROUNDS * MOVES_OF(slot) -> break
    :: else ->
#ifdef SOCKET
       if
       :: slot == 0 -> sent++
       :: else ->
#endif
          turn[slot]++;
          d_step {
              if
              :: announced[slot] != 0 -> doorbell = true
              :: else
              fi
          }
#ifdef SOCKET
       fi
#endif
       ;
       move++;
       move % MOVES_OF(slot) != 0 || taken[slot] == move
    od
}

/* A program that leaves a slot to the service thread (ProgressEngine::hand_over), and the slot's
   peer. */
proctype leaver(byte slot) {
    byte comm = slot / SLOTS, move;
    pending[comm]++;
    wake_service();
    wake_sleepers(comm);
    publish_all(slot)
}

proctype peer(byte slot) {
    byte move;
    publish_all(slot)
}

init {
    byte s = 0;
#ifdef ONE_FIRST
    if
    :: first = 0
    :: first = THREADS - 1
    fi;
#endif
    atomic {
        do
        :: s == ALL -> break
        :: else ->
           if
           :: s < THREADS -> run program(s); run peer(s)
           :: else -> run leaver(s)
           fi;
           s++
        od;
        if
        :: THREADS < ALL -> run service()
        :: else
        fi
    }
}
