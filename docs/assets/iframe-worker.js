/* The search runs in a worker, and browsers start no worker from file://. There, a hidden frame does its work:
   it has a global scope of its own, loads the worker's script and passes messages on. */
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      const tag = document.createElement("script")
      tag.src = address
      this.frame.srcdoc = tag.outerHTML
      this.ready = new Promise(resolve => this.frame.addEventListener("load", resolve, { once: true }))
      document.body.append(this.frame)
    }

    postMessage(data) {
      const copy = structuredClone(data)
      this.ready.then(() => {
        const room = this.frame.contentWindow
        // As from a worker: later, and a copy.
        room.postMessage = answer => setTimeout(() => this.onmessage?.(new MessageEvent("message", { data: structuredClone(answer) })))
        room.dispatchEvent(new room.MessageEvent("message", { data: copy }))
      })
    }

    terminate() {
      this.frame.remove()
    }
  }
}
