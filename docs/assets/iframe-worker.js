/* The search runs in a worker, and browsers start no worker from file://. There, a hidden frame does its work:
   it has a global scope of its own, loads the worker's script and passes messages on. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      const tag = document.createElement("script")
      tag.src = address
      this.frame.srcdoc = tag.outerHTML
      this.ready = new Promise(resolve => this.frame.addEventListener("load", resolve, { once: true }))
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.ready.then(() => {
        const room = this.frame.contentWindow
        room.postMessage = answer => this.dispatchEvent(new MessageEvent("message", { data: answer }))
        room.dispatchEvent(new room.MessageEvent("message", { data }))
      })
    }

    terminate() {
      this.frame.remove()
    }
  }
}
