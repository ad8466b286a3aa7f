/* Threads that sleep for peers in shared memory: ProgressEngine::sleep_until_moved, Reactor::poll and
   ServiceThread::serve without their time-outs, so that a lost wake-up is a deadlock.

   Each of SLEEPERS threads of the program waits for a communicator of its own. All share the
   doorbell (an eventfd) and the data reactor. With SERVICE, the service thread drives one more
   communicator. A peer of each communicator makes ROUNDS moves: it writes the turn, rings the
   doorbell if the sleeper has announced itself, and waits until the turn has been taken.

   COUNT_FIRST: a poll counts its round before the doorbell is drained, as tutti did once. */
#ifndef SLEEPERS
#define SLEEPERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define COMMS (SLEEPERS + 1)

byte turn[COMMS], taken[COMMS];
bool asleep[COMMS];

bool doorbell, polling;
byte rounds;

/* The service thread: kicked has its own descriptor. */
bool kick, kicked, dozing;

inline found() {
#ifdef COUNT_FIRST
    rounds++;
    doorbell = false
#else
    doorbell = false;
    rounds++
#endif
}

/* Reactor::poll(-1, since) of the data reactor. */
inline poll_data(since, called) {
    called = false;
    if
    :: atomic { !polling -> polling = true };
       if
       :: rounds != since ->
          if
          :: doorbell -> found(); called = true
          :: !doorbell
          fi
       :: rounds == since -> doorbell; found(); called = true
       fi;
       polling = false
    :: polling -> (!polling || rounds != since) /* wait_beside */
    fi
}

proctype sleeper(byte comm) {
    byte round = 1, since;
    bool moved, called;
    do
    :: round > ROUNDS -> break
    :: else ->
       do
       :: turn[comm] >= round -> break
       :: else ->
          since = rounds;
          asleep[comm] = true;
          moved = (turn[comm] >= round);
          if
          :: moved
          :: !moved ->
             poll_data(since, called);
             if
             :: called && dozing && !kicked -> kicked = true; kick = true
             :: else
             fi
          fi;
          asleep[comm] = false
       od;
       taken[comm] = round;
       round++
    od
}

proctype service(byte comm) {
    byte round = 1;
    bool moved;
    do
    :: round > ROUNDS -> break
    :: else ->
       do
       :: turn[comm] >= round -> break
       :: else ->
          kicked = false;
          dozing = true;
          asleep[comm] = true;
          moved = (turn[comm] >= round);
          if
          :: !moved && !kicked ->
             /* Wakes for a kick, or because the data reactor's epoll is readable, which it then
                polls without waiting. */
             if
             :: kick -> kick = false
             :: doorbell ->
                if
                :: atomic { !polling -> polling = true };
                   if
                   :: doorbell -> found()
                   :: else
                   fi;
                   polling = false
                :: polling
                fi
             fi
          :: else
          fi;
          dozing = false;
          asleep[comm] = false
       od;
       taken[comm] = round;
       round++
    od
}

proctype peer(byte comm) {
    byte round = 1;
    do
    :: round > ROUNDS -> break
    :: else ->
       turn[comm] = round;
       if
       :: asleep[comm] -> doorbell = true
       :: else
       fi;
       taken[comm] == round;
       round++
    od
}

init {
    byte i = 0;
    atomic {
        do
        :: i == SLEEPERS -> break
        :: else -> run sleeper(i); run peer(i); i++
        od;
#ifdef SERVICE
        run service(SLEEPERS);
        run peer(SLEEPERS)
#endif
    }
}
