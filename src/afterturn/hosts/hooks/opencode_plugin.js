// afterturn's plugin for opencode, written by `afterturn install opencode`. It reports each event to afterturn's hook
// script, adds recalled memories to the user's message, and stops tool calls that a firm rule forbids. If anything
// fails, opencode continues without memory.
import { spawn, spawnSync } from "node:child_process"

const COMMAND = ["@COMMAND@"]
const LIMIT_MS = 5000
const OUTPUT_CHARS_MAX = 20000

function parse(text) {
  try {
    const value = JSON.parse(text || "{}")
    return value && typeof value === "object" ? value : {}
  } catch {
    return {}
  }
}

// `opencode run "some words"` puts the argument into quotation marks, which the user has not typed.
function unquoted(prompt) {
  const typed = process.argv.find((word) => prompt === `"${word.replace(/"/g, '\\"')}"`)
  return typed ?? prompt
}

function ask(event, payload) {
  return new Promise((resolve) => {
    let text = ""
    try {
      const child = spawn(COMMAND[0], [...COMMAND.slice(1), event], { stdio: ["pipe", "pipe", "ignore"] })
      const timer = setTimeout(() => child.kill(), LIMIT_MS)
      child.stdout.on("data", (part) => (text += part))
      child.stdin.on("error", () => {})
      child.on("error", () => resolve({}))
      child.on("close", () => {
        clearTimeout(timer)
        resolve(parse(text))
      })
      child.stdin.end(JSON.stringify(payload))
    } catch {
      resolve({})
    }
  })
}

// For the last events of a process: `opencode run` does not wait for plugins.
function tell(event, payload) {
  try {
    spawnSync(COMMAND[0], [...COMMAND.slice(1), event], {
      input: JSON.stringify(payload),
      stdio: ["pipe", "ignore", "ignore"],
      timeout: LIMIT_MS,
    })
  } catch {}
}

export const AfterturnPlugin = async ({ directory }) => {
  const children = new Set()
  const answers = new Map()
  const users = new Set()
  // The prompt of each turn: a helper that was started since then does not know it.
  const open = new Map()
  // The command that the user typed, by session: the message that follows has its text, which nobody typed.
  const commands = new Map()
  // Calls that were refused, or whose failure is reported.
  const failed = new Set()
  let parts = 0

  const payloadOf = (session, fields) => ({ session_id: session, cwd: directory, ...fields })

  const endTurn = (session) => {
    const prompt = open.get(session)
    if (!open.delete(session)) return
    const answer = answers.get(session)
    answers.delete(session)
    const text = answer ? [...answer.texts.values()].join("\n").trim() : ""
    tell("Stop", payloadOf(session, { prompt, last_assistant_message: text }))
  }

  return {
    "chat.message": async (input, output) => {
      const session = input.sessionID
      if (children.has(session)) return
      users.add(output.message.id)
      const texts = output.parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
      const text = unquoted(texts.map((part) => part.text).join("\n"))
      const command = commands.get(session)
      commands.delete(session)
      const prompt = command ?? text
      if (!prompt.trim()) return
      open.set(session, prompt)
      answers.delete(session)
      const fields = { prompt, loaded: command === undefined ? "" : text, prompt_id: output.message.id }
      const { context } = await ask("UserPromptSubmit", payloadOf(session, fields))
      if (typeof context !== "string" || !context) return
      parts += 1
      output.parts.push({
        id: `prt_${Date.now().toString(16)}${parts.toString().padStart(4, "0")}afterturn`,
        sessionID: session,
        messageID: output.message.id,
        type: "text",
        text: context,
        synthetic: true,
      })
    },
    "command.execute.before": async (input) => {
      commands.set(input.sessionID, `/${input.command} ${input.arguments ?? ""}`.trim())
    },
    "tool.execute.before": async (input, output) => {
      const fields = { tool_name: input.tool, tool_input: output.args, tool_use_id: input.callID }
      // Firm rules hold in sub-agents too.
      if (children.has(input.sessionID)) fields.agent_id = input.sessionID
      const { refusal } = await ask("PreToolUse", payloadOf(input.sessionID, fields))
      if (typeof refusal !== "string" || !refusal) return
      failed.add(input.callID)
      throw new Error(refusal)
    },
    "tool.execute.after": async (input, output) => {
      if (children.has(input.sessionID)) return
      // The result of an MCP tool is a list of parts.
      const parts = Array.isArray(output?.content) ? output.content.map((part) => part?.text ?? "") : []
      const result = String(output?.output ?? parts.join("\n")).slice(0, OUTPUT_CHARS_MAX)
      const fields = { tool_name: input.tool, tool_use_id: input.callID, tool_response: result }
      await ask("PostToolUse", payloadOf(input.sessionID, fields))
    },
    event: async ({ event }) => {
      const about = event.properties ?? {}
      if (event.type === "session.created" && about.info?.parentID) {
        children.add(about.info.id)
      } else if (event.type === "message.part.updated" && about.part?.type === "text") {
        const { sessionID, messageID, id, text, synthetic } = about.part
        if (children.has(sessionID) || users.has(messageID) || synthetic) return
        const known = answers.get(sessionID)
        // Only the last message of the assistant is its answer.
        const answer = known && known.message === messageID ? known : { message: messageID, texts: new Map() }
        answer.texts.set(id, text)
        answers.set(sessionID, answer)
      } else if (event.type === "message.part.updated" && about.part?.state?.status === "error") {
        const { sessionID, callID, tool, state } = about.part
        if (children.has(sessionID) || failed.has(callID)) return
        failed.add(callID)
        const fields = { tool_name: tool, tool_use_id: callID, error: String(state.error).slice(0, OUTPUT_CHARS_MAX) }
        await ask("PostToolUseFailure", payloadOf(sessionID, fields))
      } else if (event.type === "session.compacted") {
        if (!children.has(about.sessionID)) {
          await ask("SessionStart", payloadOf(about.sessionID, { source: "compact" }))
        }
      } else if (event.type === "session.idle") {
        endTurn(about.sessionID)
      } else if (event.type === "session.status" && about.status?.type === "idle") {
        endTurn(about.sessionID)
      } else if (event.type === "session.deleted") {
        tell("SessionEnd", payloadOf(about.info?.id ?? "", {}))
      }
    },
  }
}
