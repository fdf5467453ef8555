// SPDX-License-Identifier: Apache-2.0
// One StepStream call: its messages in order, then how it ended.

export class Stream {
  #call;
  #waiting = []; // messages that nobody has listened to yet
  #status;
  #listener;

  constructor(call) {
    this.#call = call;
    call.on('data', (message) => {
      this.#waiting.push(message);
      this.#deliver();
    });
    call.on('error', () => {}); // its status comes as well
    // Behind the messages that came with it.
    call.on('status', (status) => setImmediate(() => {
      this.#status = status;
      this.#deliver();
    }));
  }

  // listener: {message(message), end({code, details})}. Takes the place of the one before.
  listen(listener) {
    this.#listener = listener;
    this.#deliver();
  }

  // The next message. Rejects with the call's status where there is none.
  next() {
    return new Promise((resolve, reject) => {
      const stop = () => (this.#listener = undefined);
      this.listen({
        message: (message) => {
          stop();
          resolve(message);
        },
        end: (status) => {
          stop();
          reject(status);
        },
      });
    });
  }

  // Of a call that has ended, a write is dropped: its end is delivered to the listener.
  write(message) {
    if (!this.#status) this.#call.write(message);
  }

  // No more writes: the call ends when all is answered.
  end() {
    this.#call.end();
  }

  cancel() {
    this.#call.cancel();
  }

  #deliver() {
    while (this.#listener && this.#waiting.length > 0) {
      this.#listener.message(this.#waiting.shift());
    }
    if (this.#listener && this.#status) this.#listener.end(this.#status);
  }
}
